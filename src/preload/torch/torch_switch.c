/* Each use of the switch ends in sg_torch_allocator_cache(true) or in one tensor's answer. Lines say why the cache is
   on. */
#include "torch/torch_switch.h"

#include <stdatomic.h>
#include <stdio.h>

#include "config/conf.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "torch/torch_allocator.h"
#include "torch/torch_pools.h"
#include "torch/torch_segments.h"
#include "track/captures.h"
#include "track/torch_mode.h"

/* A live block of ours that begins there and is no segment of the cache. */
bool sg_torch_is_direct(const void *pointer)
{
    struct sg_block_info block;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    struct sg_core *core = sg_torch_direct() && sg_process_owns(address) ? sg_enter() : NULL;
    bool is = core && sg_core_block(core, sg_inner(address), &block) == CUDA_SUCCESS && sg_shown(block.base) == address;
    if (core)
        sg_leave();
    return is && !sg_torch_is_segment(pointer);
}

static bool switch_is_possible(void)
{
    return sg_torch_switchable() && sg_process_conf()->pytorch == SG_PYTORCH_AUTO;
}

/* The cache first, then the mode: a tensor that comes in between is a segment's. */
static bool switch_for_good(void)
{
    if (!switch_is_possible() || !sg_torch_allocator_cache(true))
        return false;
    sg_torch_caches_segments();
    sg_torch_mode_change(SG_TORCH_SWITCHABLE, SG_TORCH_SWITCHED);
    return true;
}

void sg_torch_explain_pool(void)
{
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    if (sg_torch_direct() && sg_process_conf()->pytorch == SG_PYTORCH_DIRECT && !atomic_flag_test_and_set(&noted))
        sg_log_line("PyTorch allocates for a pool of its own (MemPool, or a CUDA graph), and pytorch:direct bypasses it: "
                    "SEGALLOC_CONF=pytorch:auto or pytorch:beneath has its memory in the pool");
}

void sg_torch_pool_begins(uint64_t first, uint64_t second)
{
    sg_torch_mode_next_pool(first, second);
    if (switch_is_possible() && !sg_torch_allocator_routes())
        (void)switch_for_good();
    sg_torch_explain_pool();
}

void sg_torch_caches_segments(void)
{
    if (!atomic_load_explicit(&sg_torch_segments_seen, memory_order_relaxed))
        atomic_store(&sg_torch_segments_seen, true);
}

bool sg_torch_pool_allocates(void)
{
    if (!switch_is_possible() || !sg_torch_pools_route())
        return false;
    sg_torch_caches_segments();
    return true;
}

bool sg_torch_gives_back(void)
{
    return sg_torch_switchable() && atomic_load_explicit(&sg_torch_segments_seen, memory_order_relaxed) &&
        !sg_thread_inside() && !sg_captures_active() && sg_torch_allocator_empty();
}

static atomic_bool history_wanted, spare_wanted; /* before the first allocation */

/* A line, once, on what becomes of PyTorch's history where tensors are served here. */
static void explain_history(const char *what_becomes_of_it)
{
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    char line[256];
    if (atomic_flag_test_and_set(&noted))
        return;
    snprintf(line, sizeof line,
        "PyTorch records its memory history: %s; `segalloc run --torch` keeps the history of what segalloc serves",
        what_becomes_of_it);
    sg_log_line(line);
}

static const char nothing_in_it[] =
    "nothing is in it without its own cache, which SEGALLOC_CONF=pytorch:beneath keeps on";

/* PYTORCH_NO_CUDA_MEMORY_CACHING=1: natively there is no history either. */
static bool is_off_by_its_user(void)
{
    return sg_torch_mode() == SG_TORCH_DIRECT && sg_process_conf()->pytorch != SG_PYTORCH_DIRECT;
}

/* Before the mode is known the wish is only kept, and the question decides by it. */
void sg_torch_history(bool on)
{
    if (!sg_torch_mode_known()) {
        atomic_store(&history_wanted, on);
        return;
    }
    if (!on || !sg_torch_direct() || sg_torch_switched() || is_off_by_its_user())
        return;
    explain_history(switch_for_good()
                        ? "its own cache is on from here on, and what was allocated before has no stacks in it"
                        : nothing_in_it);
}

void sg_torch_explain_history(void)
{
    if (atomic_load(&history_wanted))
        explain_history(sg_torch_direct() ? nothing_in_it : "its own cache stays on for that, as with pytorch:beneath");
}

void sg_torch_spare_pool(void)
{
    if (!sg_torch_mode_known())
        atomic_store(&spare_wanted, true);
    else if (switch_for_good())
        sg_log_line("PyTorch has a pool to be used when memory runs out (use_on_oom): its own cache is on from here on");
}

bool sg_torch_wants_history(void)
{
    return atomic_load(&history_wanted);
}

bool sg_torch_wants_spare_pool(void)
{
    return atomic_load(&spare_wanted);
}
