/* One atomic word for the mode, and two lines that are printed once. */
#include "track/torch_mode.h"

#include <stdatomic.h>
#include <stddef.h>

#include "process/process.h"

/* The keeper of a cache of PyTorch's tensors. It is decided by PyTorch's first allocation; `SWITCHABLE` alone may
   become `SWITCHED` later, and stays that. */
static _Atomic(enum sg_torch_mode) mode;

static const char *const mode_words[] = {
    [SG_TORCH_UNKNOWN] = NULL,
    [SG_TORCH_BENEATH] = "beneath",
    [SG_TORCH_DIRECT] = "direct",
    [SG_TORCH_SWITCHABLE] = "direct",
    [SG_TORCH_SWITCHED] = "direct, then beneath",
    [SG_TORCH_PLUGGED] = "pluggable",
};

enum sg_torch_mode sg_torch_mode(void)
{
    return atomic_load_explicit(&mode, memory_order_acquire);
}

void sg_torch_mode_set(enum sg_torch_mode now)
{
    atomic_store(&mode, now);
}

void sg_torch_mode_change(enum sg_torch_mode before, enum sg_torch_mode now)
{
    (void)atomic_compare_exchange_strong(&mode, &before, now);
}

bool sg_torch_mode_known(void)
{
    return sg_torch_mode() != SG_TORCH_UNKNOWN;
}

bool sg_torch_direct(void)
{
    enum sg_torch_mode now = sg_torch_mode();
    return now == SG_TORCH_DIRECT || now == SG_TORCH_SWITCHABLE || now == SG_TORCH_SWITCHED;
}

bool sg_torch_switched(void)
{
    return sg_torch_mode() == SG_TORCH_SWITCHED;
}

bool sg_torch_switchable(void)
{
    return sg_torch_mode() == SG_TORCH_SWITCHABLE;
}

bool sg_torch_counts(void)
{
    return sg_torch_direct() || sg_torch_mode() == SG_TORCH_PLUGGED;
}

const char *sg_torch_mode_text(void)
{
    return mode_words[sg_torch_mode()];
}

bool sg_torch_caches(void)
{
    return sg_torch_mode() == SG_TORCH_BENEATH && sg_process_conf()->pytorch == SG_PYTORCH_AUTO;
}

/* The pool that this thread's next capture is for; 0, 0: none. */
struct pool {
    uint64_t first, second;
};
static _Thread_local struct pool next_pool;

void sg_torch_mode_next_pool(uint64_t first, uint64_t second)
{
    next_pool = (struct pool){first, second};
}

/* True if a pool's memory comes here, and not to PyTorch's cache: with pytorch:auto that serves its pools. */
static bool bypasses_pools(void)
{
    return sg_torch_mode() == SG_TORCH_DIRECT || (sg_torch_switchable() && sg_process_conf()->pytorch == SG_PYTORCH_DIRECT);
}

/* A program that captures several graphs for one pool counts on their sharing its memory. */
static void explain_pool(void)
{
    static struct {
        struct pool latest;
        bool noted;
    } captured; /* guarded by SG_LOCK_TORCH */
    struct pool its = next_pool;
    next_pool = (struct pool){0, 0};
    if (!(its.first | its.second) || !(bypasses_pools() || sg_torch_mode() == SG_TORCH_PLUGGED))
        return;
    sg_process_lock(SG_LOCK_TORCH);
    bool again = !captured.noted && captured.latest.first == its.first && captured.latest.second == its.second;
    captured.noted |= again;
    captured.latest = its;
    sg_process_unlock(SG_LOCK_TORCH);
    if (again)
        sg_log_line(
            "a second CUDA graph is captured for one pool of PyTorch's: in this mode each keeps the memory freed "
            "in its capture; SEGALLOC_CONF=pytorch:auto or pytorch:beneath, without a pluggable allocator, has "
            "graphs share it");
}

/* torch.compile begins its captures so, and few others do. */
void sg_torch_captures(CUstreamCaptureMode capture_mode)
{
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    explain_pool();
    if (capture_mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && bypasses_pools() && !atomic_flag_test_and_set(&noted))
        sg_log_line("a CUDA graph is captured as torch.compile does it, which fails without PyTorch's own cache: use "
                    "SEGALLOC_CONF=pytorch:auto or pytorch:beneath");
}
