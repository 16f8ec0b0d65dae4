/* The core of core_calls_fakes.h: it hands out blocks, knows which live, and says what it is asked. */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "inspect/core_state.h"
#include "core_calls_fakes.h"

static void say_tag(const struct sg_tag *tag)
{
    static const char *const syncs[] = {"unset", "strict", "event", "stream", "complete"};
    static const char *const rules[] = {"possible", "possible_here", "recorded"};
    say(" context %lx, %s", (unsigned long)(uintptr_t)tag->context, syncs[tag->sync]);
    if (tag->has_stream)
        say(", stream %lx", (unsigned long)(uintptr_t)tag->stream);
    if (tag->slot || tag->in_order)
        say(", slot %u%s", tag->slot, tag->in_order ? " in order" : "");
    say("%s%s%s", tag->torch ? ", torch" : "", tag->tentative ? ", tentative" : "", tag->missed_calls ? ", missed" : "");
    if (tag->user_rule)
        say(", %s", rules[tag->user_rule]);
    if (tag->site || tag->phase)
        say(", site %u, phase %u", tag->site, tag->phase);
}

/* By slot: what it says is enough to tell clocks apart. */
static void say_clock(const struct sg_vector_clock *clock)
{
    if (!clock)
        say(" all");
    for (sg_slot slot = 0; clock && slot < SG_SLOTS; slot++) {
        if (clock->at[slot])
            say(" %u:%llu", slot, (unsigned long long)clock->at[slot]);
    }
}

static int number_of(CUdeviceptr address)
{
    int number = address < BLOCKS_AT ? -1 : (int)((address - BLOCKS_AT) / BLOCK_STEP);
    return number >= 0 && number < BLOCKS_MOST && world.block[number].bytes ? number : -1;
}

CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    assert(core == core_calls_core());
    say(" malloc(%d %zx", device, bytes);
    say_tag(tag);
    say(")");
    if (happens(6))
        return answered(CUDA_ERROR_OUT_OF_MEMORY);
    if (happens(16))
        return answered(happens(4) ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_NOT_SUPPORTED);
    int number = new_id();
    *ret = BLOCKS_AT + (CUdeviceptr)number * BLOCK_STEP;
    world.block[number].address = *ret;
    world.block[number].bytes = bytes;
    world.block[number].device = device;
    world.block[number].context = tag->context;
    world.block[number].live = true;
    return answered(CUDA_SUCCESS);
}

CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    int number = number_of(address);
    assert(core == core_calls_core());
    say(" free(%llx", address);
    say_tag(tag);
    say(")");
    if (number < 0 || !world.block[number].live || world.block[number].address != address)
        return answered(CUDA_ERROR_INVALID_VALUE);
    if (happens(12)) {
        static const CUresult answers[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            CUDA_ERROR_NOT_FOUND, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_DEINITIALIZED};
        return answered(answers[random_below(&world.answers, sizeof answers / sizeof *answers)]);
    }
    world.block[number].live = false;
    return answered(CUDA_SUCCESS);
}

bool sg_core_owns(const struct sg_core *core, CUdeviceptr address)
{
    (void)core;
    return address >= BLOCKS_AT && address < BLOCKS_AT + BLOCKS_MOST * BLOCK_STEP;
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    int number = number_of(address);
    assert(core == core_calls_core());
    say(" block(%llx)", address);
    if (!sg_core_owns(core, address))
        return answered(CUDA_ERROR_NOT_FOUND);
    if (number < 0 || !world.block[number].live || address - world.block[number].address >= world.block[number].bytes)
        return answered(CUDA_ERROR_INVALID_VALUE);
    *ret = (struct sg_block_info){.base = world.block[number].address,
        .bytes = world.block[number].bytes,
        .device = world.block[number].device,
        .context = world.block[number].context,
        .buffer_id = (uint64_t)number + 7,
        .cross_device = number % 5 == 0,
        .plain = number % 3 == 0};
    return CUDA_SUCCESS;
}

CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all)
{
    assert(core == core_calls_core());
    say(" wait_for(%llx %lx)", address, (unsigned long)(uintptr_t)current);
    *ret_all = random_below(&world.answers, 2);
    return answered(happens(12) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

void sg_core_mem_info(struct sg_core *core, int device, size_t *free_bytes, size_t *total_bytes)
{
    assert(core == core_calls_core());
    say(" mem_info_of_core(%d %zx %zx)", device, *free_bytes, *total_bytes);
    *free_bytes += 4096;
}

size_t sg_core_trim(struct sg_core *core, int device, size_t keep)
{
    assert(core == core_calls_core());
    if (device < 2)
        say(" trim(%d %zx)", device, keep);
    return device < 2 && happens(2) ? 1000 : 0;
}

static bool fill_stats(struct sg_stats *ret, uint64_t step)
{
    memset(ret, 0, sizeof *ret);
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        ret->value[i] = step * (uint64_t)(i + 1);
        ret->peak[i] = 2 * ret->value[i];
    }
    ret->value[SG_STAT_reserved_bytes] = 3 * step + 1000000;
    ret->value[SG_STAT_allocated_bytes] = 2 * step;
    ret->value[SG_STAT_pending_bytes] = random_below(&world.answers, 2);
    return true;
}

bool sg_core_stats(struct sg_core *core, int device, struct sg_stats *ret)
{
    assert(core == core_calls_core());
    say(" stats(%d)", device);
    return device < 2 && fill_stats(ret, 1000);
}

bool sg_core_stats_recent(struct sg_core *core, int device, struct sg_stats *ret)
{
    assert(core == core_calls_core());
    say(" stats_recent(%d)", device);
    return device < 2 && fill_stats(ret, 700);
}

bool sg_core_take_peaks(struct sg_core *core, int device, struct sg_stats *ret)
{
    assert(core == core_calls_core());
    say(" take_peaks(%d)", device);
    return device < 2 && fill_stats(ret, 500);
}

uint64_t sg_core_limit(struct sg_core *core, int device)
{
    assert(core == core_calls_core());
    say(" limit(%d)", device);
    return 1u << 30;
}

CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot)
{
    assert(core == core_calls_core());
    say(" record_stream(%llx %u)", address, slot);
    return answered(happens(8) ? CUDA_ERROR_NOT_FOUND : happens(12) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

sg_slot sg_core_slot(struct sg_core *core, int device, const struct sg_stream_id *id)
{
    assert(core == core_calls_core());
    sg_slot slot = happens(24) ? 0 : (sg_slot)(id->key % (SG_SLOTS - 1) + 1);
    say(" slot(%d %llu c%lx h%lx %d %x):%u", device, (unsigned long long)id->key, (unsigned long)(uintptr_t)id->context,
        (unsigned long)(uintptr_t)id->handle, id->per_thread, id->flags, slot);
    return slot;
}

void sg_core_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret)
{
    uint64_t now = (uint64_t)new_id();
    assert(core == core_calls_core());
    say(" clock(%d %u)", device, slot);
    memset(ret, 0, sizeof *ret);
    ret->at[slot] = now;
    ret->at[(slot + 1) % SG_SLOTS] = now / 2;
}

void sg_core_idle_clock(struct sg_core *core, int device, sg_slot slot, struct sg_vector_clock *ret_told,
    uint64_t *ret_done)
{
    sg_core_clock(core, device, slot, ret_told);
    *ret_done = ret_told->at[slot] - random_below(&world.answers, 2);
}

void sg_core_context_clock(struct sg_core *core, int device, CUcontext context, struct sg_vector_clock *ret)
{
    say(" of_context(%lx)", (unsigned long)(uintptr_t)context);
    sg_core_clock(core, device, 0, ret);
}

void sg_core_ordered_after(struct sg_core *core, int device, sg_slot slot, const struct sg_vector_clock *clock)
{
    assert(core == core_calls_core());
    say(" ordered_after(%d %u", device, slot);
    say_clock(clock);
    say(")");
}

void sg_core_completed(struct sg_core *core, int device, const struct sg_vector_clock *clock)
{
    assert(core == core_calls_core());
    say(" completed(%d", device);
    say_clock(clock);
    say(")");
}

void sg_core_host_observed(struct sg_core *core, int device, const struct sg_vector_clock *clock)
{
    assert(core == core_calls_core());
    say(" host_observed(%d", device);
    say_clock(clock);
    say(")");
}

uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings)
{
    (void)bytes, (void)mappings;
    return granularity;
}
