/* Frees: by waiting as the driver would, by the order of streams, or after all work that there is. */
#include "classic.h"
#include "core.h"
#include "device.h"
#include "turn.h"

/* On the way of every free: each call saved there is a few per cent of it. */
#define INLINE static inline __attribute__((always_inline))
#define ASIDE static __attribute__((noinline)) /* seldom needed: its variables are not to cost those who don't */

/* Waits for the contexts other than `current`. Returns the first error. */
ASIDE CUresult wait_for_others(const struct sg_core *core, CUcontext current, uint32_t count)
{
    for (const _Atomic(CUcontext) *at = core->context, *end = at + count; at < end; at++) {
        CUcontext context = atomic_load_explicit(at, memory_order_relaxed);
        CUresult result = context && context != current ? sg_driver_synchronize(core->driver, context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* Waits for every context that could be using the device's memory, as cuMemFree does. *ret_ns: how long it took. Returns
   the first error. */
INLINE CUresult wait_like_the_driver(struct sg_core *core, CUcontext current, uint64_t *ret_ns)
{
    uint64_t began = core->now_ns ? core->now_ns() : 0;
    CUresult result = core->driver->ctx_synchronize();
    uint32_t count = atomic_load_explicit(&core->context_count, memory_order_acquire);
    bool only = count == 1 && atomic_load_explicit(&core->context[0], memory_order_relaxed) == current;
    if (!only && result == CUDA_SUCCESS)
        result = wait_for_others(core, current, count);
    uint64_t ended = core->now_ns ? core->now_ns() : 0;
    *ret_ns = ended > began ? ended - began : 0;
    return result;
}

CUresult sg_core_wait(struct sg_core *core, CUcontext current)
{
    uint64_t ns;
    return wait_like_the_driver(core, current, &ns);
}

/* Under the lock: the live block that starts at `address`, 0 if none does; `likely` as of sg_region_block_at(). */
INLINE uint32_t block_at(const struct sg_range *range, CUdeviceptr address, uint32_t likely)
{
    CUdeviceptr offset = address - range->begin;
    return offset % SG_UNIT ? 0 : sg_region_block_at(range->region, (uint32_t)(offset >> SG_UNIT_SHIFT), likely);
}

/* A freed huge block's page goes back at once: it is of no use to anybody else. Its addresses wait for the next one. */
static void retire_huge(struct sg_device *device, struct sg_region *region)
{
    sg_lock_grow(device);
    sg_lock(&device->lock);
    sg_region_flush(region);
    bool idle = device->region_class[region->index] == SG_CLASS_HUGE && region->whole_free == region->pages && !region->pinned;
    sg_emit_turn(device, SEGALLOC_TURN_RETIRE, idle);
    sg_unlock(&device->lock);
    if (idle)
        sg_device_empty_region(device, region);
    sg_unlock(&device->grow);
}

/* Under the lock. */
static void count_wait(struct sg_device *device, uint64_t ns)
{
    device->usage.strict_frees++;
    device->usage.strict_wait_ns += ns;
}

/* Classic blocks are freed at once, so whoever has not waited does now. */
static CUresult free_classic(struct sg_device *device, CUdeviceptr address, const struct sg_tag *tag)
{
    struct sg_block_info block;
    bool waits = tag->sync != SG_FREE_SYNC_AUTO;
    uint64_t waited_ns = 0;
    CUresult result = sg_classic_block(device, address, /* inside */ false, &block);
    if (result == CUDA_SUCCESS && waits)
        result = wait_like_the_driver(device->core, tag->context, &waited_ns);
    if (result == CUDA_SUCCESS)
        result = sg_classic_free(device, address, tag, waits);
    if (result == CUDA_ERROR_INVALID_VALUE)
        sg_count(device, SG_STAT_double_frees, 1);
    if (waits && result == CUDA_SUCCESS) {
        sg_lock(&device->lock);
        count_wait(device, waited_ns);
        sg_unlock(&device->lock);
    }
    return result;
}

/* Events are worth recording for so many frees that wait for more than their own stream, or so large a part of the device. */
enum { EPOCH_FREES = 32, EPOCH_SHARE = 512, EPOCH_BYTES_LEAST = 1 << 22 };

/* Counts a free that takes effect later; whether it is the last of an epoch. Under the lock. */
static bool ends_epoch(struct sg_device *device, uint32_t id)
{
    device->epoch_bytes += (uint64_t)device->nodes.node[id].size << SG_UNIT_SHIFT;
    bool ends = ++device->epoch_frees >= EPOCH_FREES ||
                (device->epoch_bytes >= EPOCH_BYTES_LEAST && device->epoch_bytes >= device->usage.reserved.now / EPOCH_SHARE);
    if (ends) {
        device->epoch_frees = 0;
        device->epoch_bytes = 0;
    }
    return ends;
}

/* Takes effect by the order of streams: at once for the block's own, for others when they have come after it. False: the block
   is used on streams that are not followed, or was allocated for one. *ret_ask: an epoch is over. Under the lock. */
static bool free_in_order(struct sg_device *device, uint32_t id, const struct sg_tag *tag, uint8_t flags, bool *ret_ask)
{
    struct sg_order *order = &device->order;
    struct sg_node *node = &device->nodes.node[id];
    sg_slot slot = sg_device_slot_of(device, node->stream);
    if (!slot || node->also & 1)
        return false;
    if (tag->sees == SG_SEES_POSSIBLE && device->peers)
        return false; /* any stream of those could have seen it too */
    if (tag->sees == SG_SEES_POSSIBLE)
        for (uint64_t left = sg_order_could_have_seen(device, slot, node->serial); left; left &= left - 1)
            sg_device_record_stream(device, id, (sg_slot)__builtin_ctzll(left));
    uint64_t others = node->also & order->alive & ~(UINT64_C(1) << slot);
    bool worked;
    uint64_t time = sg_order_freed(device, slot, others, tag->unseen, &worked);
    flags |= worked ? SEGALLOC_FLAG_ASYNC | SEGALLOC_FLAG_WORKED : SEGALLOC_FLAG_ASYNC;
    sg_emit(device, SEGALLOC_RECORD_FREE, flags, node->stream, sg_region_address(device->region[node->region], node->begin), node->requested);
    if (others) {
        *ret_ask = ends_epoch(device, id);
        sg_device_suspend(device, id, others | UINT64_C(1) << slot, time);
    } else {
        sg_device_release(device, id, slot, time);
        sg_order_owe(device, UINT64_C(1) << slot);
    }
    return true;
}

/* Takes effect after all work that there is. False: no event can tell when that is complete, so that the caller must wait.
   *ret_ask: the epoch is over. Under the lock. */
static bool free_after_all(struct sg_device *device, uint32_t id, const struct sg_tag *tag, uint8_t flags, bool *ret_ask)
{
    struct sg_node *node = &device->nodes.node[id];
    if (!sg_pending_can_cover(device, tag->followed))
        return false;
    sg_emit(device, SEGALLOC_RECORD_FREE, flags | SEGALLOC_FLAG_PENDING, node->stream, sg_region_address(device->region[node->region], node->begin), node->requested);
    *ret_ask = ends_epoch(device, id);
    sg_device_suspend(device, id, /* all streams of all contexts */ 1, sg_order_tick(device));
    return true;
}

enum outcome { FREED, FREED_HUGE, FREED_LATER, NO_BLOCK, MUST_WAIT };

/* Frees a block without waiting; MUST_WAIT: that can't be. */
INLINE enum outcome free_now(const struct sg_range *range, CUdeviceptr address, uint32_t likely, const struct sg_tag *tag, bool waited, uint64_t waited_ns)
{
    struct sg_device *device = range->device;
    uint8_t flags = (uint8_t)((waited ? SEGALLOC_FLAG_STRICT : 0) | (tag->torch ? SEGALLOC_FLAG_TORCH : 0));
    enum outcome outcome = device->region_class[range->region->index] == SG_CLASS_HUGE ? FREED_HUGE : FREED;
    bool ask = false;
    sg_lock(&device->lock);
    uint32_t id = block_at(range, address, likely);
    if (!id) {
        outcome = NO_BLOCK;
    } else if (waited || tag->sync == SG_FREE_SYNC_AUTO) {
        struct sg_node *node = &device->nodes.node[id];
        sg_emit(device, SEGALLOC_RECORD_FREE, flags, node->stream, address, node->requested);
        if (waited)
            count_wait(device, waited_ns);
        sg_device_release(device, id, 0, 0);
    } else {
        bool done = tag->sync == SG_FREE_SYNC_STREAM && free_in_order(device, id, tag, flags, &ask);
        if (!done && !free_after_all(device, id, tag, flags, &ask))
            outcome = MUST_WAIT;
        else if (!done || ask)
            outcome = ask ? FREED_LATER : FREED;
    }
    sg_unlock(&device->lock);
    return outcome;
}

/* Whether more follows from a wait than that one block is free. Without the lock, which is a good part of what a free costs: a
   stream that is followed, or a free that is put off, only just now may be missed, and then it is learnt of it another time. */
__attribute__((no_sanitize("thread"))) static bool wait_would_tell(const struct sg_device *device)
{
    return *(const volatile uint64_t *)&device->order.alive || *(const volatile uint32_t *)&device->pending.first;
}

/* Waits as the driver would, and learns that all work so far is complete. */
ASIDE CUresult wait_and_learn(struct sg_device *device, CUcontext current, uint64_t *ret_ns)
{
    struct sg_clock clock;
    sg_core_context_clock(device->core, device->ordinal, NULL, &clock);
    CUresult result = wait_like_the_driver(device->core, current, ret_ns);
    if (result == CUDA_SUCCESS)
        sg_core_completed(device->core, device->ordinal, &clock);
    for (int i = 0; result == CUDA_SUCCESS && i < SG_DEVICES_MAX; i++) /* all contexts were waited for */
        if (i != device->ordinal && atomic_load_explicit(&device->core->device[i], memory_order_relaxed))
            sg_core_told(device->core, i, NULL);
    return result;
}

CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    if (!range) {
        struct sg_device *classic = sg_core_classic_at(core, address);
        if (!classic)
            return CUDA_ERROR_NOT_FOUND;
        return atomic_load_explicit(&core->disabled, memory_order_relaxed) ? CUDA_SUCCESS : free_classic(classic, address, tag);
    }
    if (atomic_load_explicit(&core->disabled, memory_order_relaxed))
        return CUDA_SUCCESS;
    struct sg_device *device = range->device;
    uint32_t likely = 0;
    if (!range->huge)
        likely = sg_region_expect_free(range->region, (uint32_t)((address - range->begin) >> SG_UNIT_SHIFT)); /* is there when the wait is over */
    uint64_t waited_ns = 0;
    enum outcome outcome = tag->sync == SG_FREE_SYNC_STRICT ? MUST_WAIT : free_now(range, address, likely, tag, /* waited */ false, 0);
    if (outcome == MUST_WAIT) {
        CUresult result = wait_would_tell(device) ? wait_and_learn(device, tag->context, &waited_ns)
                                                  : wait_like_the_driver(core, tag->context, &waited_ns);
        if (result != CUDA_SUCCESS)
            return result;
        outcome = free_now(range, address, likely, tag, /* waited */ true, waited_ns);
    }
    if (outcome == NO_BLOCK) {
        if (!tag->tentative)
            sg_count(device, SG_STAT_double_frees, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (outcome == FREED_LATER || (outcome == FREED_HUGE && tag->sync == SG_FREE_SYNC_STREAM))
        sg_device_ask(device, SG_ASK_MARK);
    if (outcome == FREED_HUGE)
        retire_huge(device, range->region);
    return CUDA_SUCCESS;
}

CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    if (!range)
        return CUDA_ERROR_NOT_FOUND;
    if (slot >= SG_SLOTS)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_device *device = range->device;
    sg_lock(&device->lock);
    uint32_t id = block_at(range, address, 0);
    if (id)
        sg_device_record_stream(device, id, slot);
    sg_unlock(&device->lock);
    return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
