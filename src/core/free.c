/* Frees: by waiting as the driver would, by the order of streams, or after all work that there is.

   Each mode has its route through this file, and all end in free_now(), which alone changes the block:

       complete                   free_now: released
       strict, one context        the wait of sg_core_free, then free_now: released
       strict, several contexts   free_own if the block is its context's alone, else free_among_contexts. Both wait for
                                  that context. Then free_now: released, or pending while other contexts may use it
       stream                     free_now, free_in_order_locked: deferred, or pending while other streams may use it
       event                      free_now, free_after_all_locked: pending until the fences of its epoch have passed

   A route that cannot be gone hands on to the next: stream to event, event to the wait of strict.
   *Users* of a block are streams (users_mask); those of a strict free are contexts (struct user_contexts). */
#include "core/free.h"

#include <assert.h>

#include "core/segments/fixed_segments.h"
#include "core/space/paused.h"
#include "core/remap/execute.h"
#include "core/remap/overflow.h"
#include "core/state/accounts.h"
#include "core/state/clocks.h"
#include "core/state/locks.h"
#include "core/streams/fences.h"
#include "core/streams/followed_streams.h"
#include "core/streams/suspend.h"

/* INLINE: a function on the way of every free, where each call saved is a few per cent. ASIDE: one that is seldom
   needed, and whose variables must not cost the others. */
#define INLINE static inline __attribute__((always_inline))
#define ASIDE static __attribute__((noinline))

/* The time for statistics in ns; 0 without a clock. */
static uint64_t free_now_ns(const struct sg_core *core)
{
    return core->callbacks.now_ns ? core->callbacks.now_ns() : 0;
}

/* True if the calling thread's context is the only one: then it is the block's, and nobody else can be using it. */
INLINE bool is_alone(const struct sg_core *core, CUcontext current)
{
    uint32_t count = sg_context_list_count(&core->contexts);
    return count == 0 || (count == 1 && sg_context_list_at(&core->contexts, 0) == current);
}

/* Waits for the calling thread's context. *ret_ns: how long it took. */
INLINE CUresult wait_for_current(const struct sg_core *core, uint64_t *ret_ns)
{
    uint64_t began = free_now_ns(core);
    CUresult result = sg_core_driver(core)->ctx_synchronize();
    uint64_t ended = free_now_ns(core);
    *ret_ns = ended > began ? ended - began : 0;
    return result;
}

/* The contexts whose work may be using a block. */
struct user_contexts {
    struct sg_device *device;
    CUcontext own_context; /* the context that it was allocated in, NULL: not known */
    bool cross_device; /* other devices' too */
};

/* True if work of a context that is not the block's own may be using the block. A context of the same device reaches
   all of its memory. One of another device reaches only memory that it got access to or has copied. */
static bool may_use(const struct user_contexts *users, uint32_t index)
{
    const struct sg_core *core = users->device->core;
    CUcontext context = sg_context_list_at(&core->contexts, index);
    return context && context != users->own_context &&
           (users->cross_device || sg_context_list_device(&core->contexts, index) == users->device->ordinal);
}

/* True if any context besides the block's own may be using it. */
static bool has_others(const struct user_contexts *users)
{
    uint32_t count = sg_context_list_count(&users->device->core->contexts);
    bool any = false;
    for (uint32_t i = 0; i < count && !any; i++)
        any = may_use(users, i);
    return any;
}

/* True if streams of the device are followed. It is read without `lock`, which is a good part of a free's cost. A
   stream that is followed since just now may be missed. The wait's news of it is then gained another time. */
__attribute__((no_sanitize("thread"))) static bool follows_streams(const struct sg_device *device)
{
    return *(const volatile uint64_t *)&device->clocks.alive;
}

/* Notes that the host has waited for a context while streams are followed. Its streams may have waited for others, so
   the host may have observed all work of all devices. */
static void host_observed_others(const struct sg_core *core)
{
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (atomic_load_explicit(&core->device[i], memory_order_relaxed))
            sg_core_host_observed((struct sg_core *)core, i, NULL);
}

/* Waits for the context of a block, as cuMemFree does, and notes that the work of its streams is complete. Their
   clock is read before the wait, so work that comes meanwhile is not counted. */
static CUresult wait_for_own_context(const struct user_contexts *users, CUcontext current)
{
    struct sg_core *core = users->device->core;
    struct sg_vector_clock clock;
    CUcontext own_context = users->own_context ? users->own_context : current;
    bool follows = follows_streams(users->device);
    if (follows)
        sg_core_context_clock(core, users->device->ordinal, own_context, &clock);
    CUresult result = own_context == current ? sg_core_driver(core)->ctx_synchronize()
                                             : sg_driver_synchronize(sg_core_driver(core), own_context);
    if (result == CUDA_SUCCESS && follows) {
        sg_core_completed(core, users->device->ordinal, &clock);
        host_observed_others(core);
    }
    return result;
}

/* Waits for all others that may be using a block. Returns the first error. */
static CUresult wait_for_others(const struct user_contexts *users)
{
    const struct sg_core *core = users->device->core;
    uint32_t count = sg_context_list_count(&core->contexts);
    for (uint32_t i = 0; i < count; i++) {
        CUcontext context = sg_context_list_at(&core->contexts, i);
        CUresult result = may_use(users, i) ? sg_driver_synchronize(sg_core_driver(core), context) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* Under `lock`: the live block that starts at `address`, 0 if none does; `likely` as of sg_region_block_at_locked(). */
INLINE uint32_t range_block_at_locked(const struct sg_range *range, CUdeviceptr address, uint32_t likely)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&range->device->lock);
    CUdeviceptr offset = address - range->begin;
    return offset % SG_UNIT ? 0 : sg_region_block_at_locked(range->region, (uint32_t)(offset >> SG_UNIT_SHIFT), likely);
}

/* Counts a strict free and how long it waited. */
static void count_wait_locked(struct sg_device *device, uint64_t ns) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    device->accounts.usage.strict_frees++;
    device->accounts.usage.strict_wait_ns += ns;
}

/* A free in a segment takes effect at once, so it waits for the block's context first, as the driver's own memory does.
   A caller that records streams also expects a wait for streams of other contexts. */
static CUresult free_in_segment(struct sg_device *device, CUdeviceptr address, const struct sg_tag *tag)
{
    struct sg_block_info block;
    bool waits = tag->sync != SG_FREE_SYNC_COMPLETE;
    CUresult result = sg_segments_block(device, address, /* inside */ false, &block);
    /* The wait comes before the free takes effect, and without a lock. The block may be freed by another thread
       meanwhile: then sg_segments_free() finds none. */
    uint64_t began = free_now_ns(device->core);
    if (result == CUDA_SUCCESS && waits) {
        const struct user_contexts users = {device, block.context, /* cross_device */ true};
        result = wait_for_own_context(&users, tag->context);
        bool users_recorded = tag->torch || (tag->sync != SG_FREE_SYNC_STRICT && tag->user_rule == SG_USERS_RECORDED);
        if (result == CUDA_SUCCESS && block.cross_device && users_recorded)
            result = wait_for_others(&users);
    }
    uint64_t waited_ns = free_now_ns(device->core) - began;
    if (result == CUDA_SUCCESS)
        result = sg_segments_free(device, address, tag, waits);
    if (result == CUDA_ERROR_INVALID_VALUE)
        sg_count(device, SG_STAT_double_frees, 1);
    if (waits && result == CUDA_SUCCESS) {
        sg_device_lock(device);
        count_wait_locked(device, waited_ns);
        sg_device_unlock(device);
    }
    return result;
}

/* Counts a free that takes effect later. Returns true if it ends an epoch: the 32nd free (SG_EPOCH_FREES), or 1/512
   of reserved memory (SG_EPOCH_SHARE), two pages at least. A large free is worth an event sooner; of a small total
   each would be. */
static bool ends_epoch_locked(struct sg_device *device, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    device->fences.epoch_bytes += (uint64_t)device->regions.extents.extent[id].size << SG_UNIT_SHIFT;
    uint64_t share = device->accounts.usage.reserved.now / SG_EPOCH_SHARE,
             pages = 2 * device->regions.page_bytes[SG_KIND_REGULAR];
    bool ends = ++device->fences.epoch_frees >= SG_EPOCH_FREES ||
                device->fences.epoch_bytes >= (share > pages ? share : pages);
    if (ends) {
        device->fences.epoch_frees = 0;
        device->fences.epoch_bytes = 0;
    }
    return ends;
}

/* True if the block's stream is gone, and its next step would have been ordered after more than its slot says (R20).
   Then the stream was destroyed and had untracked order, or its slot is another stream's by now. Its own work being
   complete says nothing of that order. A replay has no record of untracked order, but its free says to which stream
   the block went. */
static bool is_left_behind_locked(const struct sg_device *device, const struct sg_extent *extent,
    const struct sg_tag *tag, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_stream_clocks *clocks = &device->clocks;
    if (device->core->replay)
        return slot != tag->slot;
    bool unseen = (clocks->untracked_order | clocks->blocking) >> slot & 1;
    return clocks->tracked_at[slot] >= extent->alloc_seq || (clocks->state[slot] != SG_SLOT_ALIVE && unseen);
}

/* The slot of the stream in whose order a block is freed: the one that it was allocated for. Where that is not
   known, it is the stream of which the free is a step. 0: neither is known. *ret_step: it is a step. Work on the block
   before comes before this step, but need not have been followed. */
static sg_slot slot_of_free_locked(const struct sg_device *device, const struct sg_extent *extent, const struct sg_tag *tag,
    bool *ret_step) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    sg_slot slot = sg_device_slot_of(device, extent->stream);
    if (slot && is_left_behind_locked(device, extent, tag, slot))
        slot = 0;
    *ret_step = !slot && tag->in_order && tag->slot;
    return *ret_step ? tag->slot : slot;
}

/* The stream in whose order a block may be freed; 0: there is none. A block that streams outside of the clocks use
   has none. Streams of a peer could hold the address too, and those are not followed here. */
static sg_slot order_of_free_locked(const struct sg_device *device, const struct sg_extent *extent,
    const struct sg_tag *tag, bool *ret_step) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    *ret_step = false;
    bool outside = extent->users_mask & SG_USERS_ALL || (tag->user_rule == SG_USERS_POSSIBLE && device->access.peers);
    return outside ? 0 : slot_of_free_locked(device, extent, tag, ret_step);
}

/* The possible users of a block besides `slot` that were not recorded. */
static uint64_t possible_users_locked(const struct sg_device *device, const struct sg_extent *extent,
    const struct sg_tag *tag, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return tag->user_rule == SG_USERS_RECORDED
        ? 0
        : sg_clocks_possible_users(&device->clocks, slot, extent->alloc_seq, extent->idle_before, tag->user_rule);
}

/* Frees a block by the order of streams. False: it is used on streams that are not followed, or was allocated for
   one, so nothing was done. *ret_ask: an epoch is over.

   The possible users are added to those that were recorded first (R21 to R24). If there are any, the block is pending
   for all of them. Else its own stream has it at once, and others once they are ordered after the free's number (R15,
   R16). */
static bool free_in_order_locked(struct sg_device *device, uint32_t id, const struct sg_tag *tag, uint8_t flags,
    bool *ret_ask) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_stream_clocks *clocks = &device->clocks;
    struct sg_extent *extent = &device->regions.extents.extent[id];
    bool step;
    sg_slot slot = order_of_free_locked(device, extent, tag, &step);
    if (!slot)
        return false;
    if (step) /* it is that stream's from then on, as the trace says */
        extent->stream = sg_device_slot_stream(device, slot);
    /* From here on the possible users count as recorded ones, in the trace too: a replay then asks nobody for them. */
    for (uint64_t left = possible_users_locked(device, extent, tag, slot); left; left &= left - 1)
        sg_device_record_stream_locked(device, id, (sg_slot)__builtin_ctzll(left));
    /* A user whose stream is gone, and whose work is complete, has no slot any more. Nobody waits for it. */
    uint64_t others = extent->users_mask & clocks->alive & ~(UINT64_C(1) << slot);
    bool was_used;
    uint64_t seq = sg_clocks_freed_locked(device, slot, others, tag->missed_calls || step, &was_used);
    flags |= was_used ? SEGALLOC_FLAG_ASYNC | SEGALLOC_FLAG_WORKED : SEGALLOC_FLAG_ASYNC;
    sg_emit(device, SEGALLOC_RECORD_FREE, flags, extent->stream,
        sg_region_address(device->regions.region[extent->region], extent->begin), extent->requested);
    if (others) {
        *ret_ask = ends_epoch_locked(device, id);
        sg_device_suspend_locked(device, id, others | UINT64_C(1) << slot, seq);
    } else {
        sg_device_release_locked(device, id, slot, seq);
        sg_clocks_need_fence_locked(device, UINT64_C(1) << slot);
    }
    return true;
}

/* Frees a block after all work that there is. False: neither a fence nor a helper thread can show when that is
   complete, so nothing was done and the caller must wait. *ret_ask: an epoch is over. */
static bool free_after_all_locked(struct sg_device *device, uint32_t id, uint8_t flags, bool *ret_ask) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    if (!sg_fences_can_cover_locked(device) && !sg_fences_can_wait(device))
        return false;
    sg_emit(device, SEGALLOC_RECORD_FREE, flags | SEGALLOC_FLAG_PENDING, extent->stream,
        sg_region_address(device->regions.region[extent->region], extent->begin), extent->requested);
    *ret_ask = ends_epoch_locked(device, id);
    sg_device_suspend_locked(device, id, SG_USERS_ALL, sg_clocks_tick_locked(device));
    return true;
}

/* The wait that has come before a free. */
enum waited {
    WAITED_FOR_NONE,
    WAITED_FOR_OWN_CONTEXT, /* its own context's work; others' may still be using it */
    WAITED_FOR_CURRENT, /* the calling thread's context; that is all, if the block is its own and nobody else's */
    WAITED_FOR_ALL
};

/* The outcome of trying to free a block. */
enum outcome {
    FREED,
    FREED_HUGE,  /* and its page may go back to the driver */
    FREED_HOME,  /* and pages of the host's memory may go back, besides that of a huge block */
    FREED_EPOCH, /* and an epoch is over: events are worth recording */
    NO_BLOCK,    /* none begins there */
    MUST_WAIT    /* nothing was done: the caller has to wait for more */
};

/* True if a block is of a context, and no other device has had access to it. */
INLINE bool is_own_locked(const struct sg_device *device, uint32_t id, CUcontext context) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    return extent->context == (uint64_t)(uintptr_t)context && !extent->users_mask && !device->access.peer_accessed;
}

/* Frees a block, as far as that can be done after what has been waited for. `waited_ns`: what the wait took. */
INLINE enum outcome free_now(const struct sg_range *range, CUdeviceptr address, uint32_t likely,
    const struct sg_tag *tag, enum waited waited, uint64_t waited_ns)
{
    struct sg_device *device = range->device;
    uint8_t flags = (uint8_t)((waited ? SEGALLOC_FLAG_STRICT : 0) | (tag->torch ? SEGALLOC_FLAG_TORCH : 0));
    enum outcome outcome = range->huge ? FREED_HUGE : FREED;
    bool ask = false;
    sg_device_lock(device);
    uint32_t id = range_block_at_locked(range, address, likely);
    uint64_t requested = device->regions.extents.extent[id].requested;
    if (!id) {
        outcome = NO_BLOCK;
    } else if (waited == WAITED_FOR_CURRENT && !is_own_locked(device, id, tag->context)) {
        outcome = MUST_WAIT;
    } else if (waited >= WAITED_FOR_CURRENT || tag->sync == SG_FREE_SYNC_COMPLETE) {
        struct sg_extent *extent = &device->regions.extents.extent[id];
        sg_emit(device, SEGALLOC_RECORD_FREE, flags, extent->stream, address, extent->requested);
        if (waited)
            count_wait_locked(device, waited_ns);
        sg_device_release_locked(device, id, 0, 0);
    } else {
        bool ordered = tag->sync == SG_FREE_SYNC_STREAM && !waited && free_in_order_locked(device, id, tag, flags, &ask);
        if (!ordered && !free_after_all_locked(device, id, flags, &ask))
            outcome = MUST_WAIT;
        else if (ask)
            outcome = FREED_EPOCH;
        else if (!ordered)
            outcome = FREED; /* a huge one's page stays until then */
        if (waited && outcome != MUST_WAIT) {
            device->regions.extents.extent[id].context = SG_OWN_CONTEXT_IS_DONE;
            count_wait_locked(device, waited_ns);
        }
    }
    if (__builtin_expect(device->accounts.usage.overflow.now != 0, 0) && requested >= SG_OVERFLOW_LEAST &&
        (outcome == FREED_HUGE || (outcome == FREED && sg_overflow_may_return_locked(device))))
        outcome = FREED_HOME;
    sg_device_unlock(device);
    return outcome;
}

/* True if more follows from a wait than that one block is free. It looks without `lock`, as follows_streams() does. */
__attribute__((no_sanitize("thread"))) static bool wait_completes_more(const struct sg_device *device)
{
    return follows_streams(device) || *(const volatile uint32_t *)&device->pending.awaits_all.first;
}

/* Waits for the only context there is, and notes that all work so far is complete. */
ASIDE CUresult wait_and_complete(struct sg_device *device, uint64_t *ret_ns)
{
    struct sg_vector_clock clock;
    sg_core_context_clock(device->core, device->ordinal, NULL, &clock);
    CUresult result = wait_for_current(device->core, ret_ns);
    if (result == CUDA_SUCCESS)
        sg_core_completed(device->core, device->ordinal, &clock);
    return result;
}

/* Finds the contexts whose work may be using the block at `address`. False: no block starts there. */
static bool block_user_contexts(const struct sg_range *range, CUdeviceptr address, uint32_t likely,
    struct user_contexts *ret)
{
    struct sg_device *device = range->device;
    sg_device_lock(device);
    uint32_t id = range_block_at_locked(range, address, likely);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    if (id)
        *ret = (struct user_contexts){device, (CUcontext)(uintptr_t)extent->context,
            device->access.peer_accessed || extent->users_mask};
    sg_device_unlock(device);
    return id != 0;
}

/* Guesses, by a look without `lock`, that a block is of this context and used by no other. Another thread may be
   changing it, so free_now() asks again under the lock. */
SG_UNCHECKED_LOCKS __attribute__((no_sanitize("thread"))) static bool looks_own(const struct sg_device *device,
    uint32_t likely, CUcontext context)
{
    const struct sg_extent *extent = &device->regions.extents.extent[likely];
    return likely && *(const volatile uint64_t *)&extent->context == (uint64_t)(uintptr_t)context &&
           !*(const volatile uint64_t *)&extent->users_mask && !*(const volatile bool *)&device->access.peer_accessed &&
           !follows_streams(device);
}

/* The usual strict free where other devices have contexts: the block is of the calling thread's context, which is its
   device's only one. It takes one look under `lock` where free_among_contexts() takes two. MUST_WAIT: the case is
   another, and the block is as it was. */
ASIDE enum outcome free_own(const struct sg_range *range, CUdeviceptr address, uint32_t likely,
    const struct sg_tag *tag, CUresult *ret)
{
    const struct user_contexts users = {range->device, tag->context, /* cross_device */ false};
    uint64_t waited_ns;
    if (!looks_own(range->device, likely, tag->context) || has_others(&users))
        return MUST_WAIT;
    *ret = wait_for_current(range->device->core, &waited_ns);
    return *ret == CUDA_SUCCESS ? free_now(range, address, likely, tag, WAITED_FOR_CURRENT, waited_ns) : MUST_WAIT;
}

/* A strict free where there are several contexts (R31, R32). It waits for the context of the block alone, as
   natively: work of others may wait for what the program does after the free. Work that other contexts were given
   before keeps the block pending, without a wait. *ret: the first error. */
ASIDE enum outcome free_among_contexts(const struct sg_range *range, CUdeviceptr address, uint32_t likely,
    const struct sg_tag *tag, CUresult *ret)
{
    struct sg_device *device = range->device;
    struct sg_core *core = device->core;
    struct user_contexts users;
    if (!block_user_contexts(range, address, likely, &users))
        return NO_BLOCK;
    uint64_t began = free_now_ns(core);
    *ret = wait_for_own_context(&users, tag->context);
    if (*ret != CUDA_SUCCESS)
        return MUST_WAIT;
    enum outcome outcome = free_now(range, address, likely, tag,
        has_others(&users) ? WAITED_FOR_OWN_CONTEXT : WAITED_FOR_ALL, free_now_ns(core) - began);
    if (outcome == MUST_WAIT && (*ret = wait_for_others(&users)) == CUDA_SUCCESS)
        outcome = free_now(range, address, likely, tag, WAITED_FOR_ALL, free_now_ns(core) - began);
    return outcome;
}

/* Frees a paused block: work on it was waited for when it was paused. False: none starts there. */
ASIDE bool free_paused(const struct sg_range *range, CUdeviceptr address, const struct sg_tag *tag)
{
    struct sg_device *device = range->device;
    CUdeviceptr offset = address - range->begin;
    sg_device_lock(device);
    uint32_t id = offset % SG_UNIT ? 0
                                   : sg_region_paused_at_locked(range->region, (uint32_t)(offset >> SG_UNIT_SHIFT));
    if (id) {
        const struct sg_extent *extent = &device->regions.extents.extent[id];
        sg_emit(device, SEGALLOC_RECORD_FREE, tag->torch ? SEGALLOC_FLAG_TORCH : 0, extent->stream, address,
            extent->requested);
        sg_device_release_paused_locked(device, id);
    }
    sg_device_unlock(device);
    return id != 0;
}

CUresult sg_core_wait_for_all(struct sg_core *core)
{
    uint32_t count = sg_context_list_count(&core->contexts);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUcontext context = sg_context_list_at(&core->contexts, i);
        result = context ? sg_driver_synchronize(sg_core_driver(core), context) : CUDA_SUCCESS;
    }
    return result;
}

CUresult sg_core_wait(struct sg_core *core, CUdeviceptr address, CUcontext current, bool *ret_all)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    struct sg_device *fixed = range ? NULL : sg_core_segments_at(core, address);
    struct sg_block_info block;
    struct user_contexts users;
    if (range ? !block_user_contexts(range, address, 0, &users)
              : !fixed || sg_segments_block(fixed, address, /* inside */ false, &block) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (fixed)
        users = (struct user_contexts){fixed, block.context, /* cross_device */ true};
    CUresult result = wait_for_own_context(&users, current);
    *ret_all = result == CUDA_SUCCESS && !has_others(&users);
    return result;
}

CUresult sg_core_free(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    assert(tag->sync != SG_FREE_SYNC_AUTO);
    if (tag->sync == SG_FREE_SYNC_AUTO)
        return CUDA_ERROR_NOT_SUPPORTED;
    const struct sg_range *range = sg_core_range_at(core, address);
    if (!range) {
        struct sg_device *fixed = sg_core_segments_at(core, address);
        if (!fixed)
            return CUDA_ERROR_NOT_FOUND;
        return atomic_load_explicit(&core->disabled, memory_order_relaxed) ? CUDA_SUCCESS
                                                                           : free_in_segment(fixed, address, tag);
    }
    if (atomic_load_explicit(&core->disabled, memory_order_relaxed))
        return CUDA_SUCCESS;
    struct sg_device *device = range->device;
    uint32_t likely = 0;
    /* The extent is fetched into the cache while the wait goes on. A huge block's region may be remade, so it is not
       looked at. */
    if (!range->huge)
        likely = sg_region_expect_free(range->region, (uint32_t)((address - range->begin) >> SG_UNIT_SHIFT));
    enum outcome outcome = tag->sync == SG_FREE_SYNC_STRICT ? MUST_WAIT
                                                            : free_now(range, address, likely, tag, WAITED_FOR_NONE, 0);
    if (outcome == MUST_WAIT && is_alone(core, tag->context)) {
        uint64_t waited_ns = 0;
        CUresult result = wait_completes_more(device) ? wait_and_complete(device, &waited_ns)
                                                      : wait_for_current(core, &waited_ns);
        if (result != CUDA_SUCCESS)
            return result;
        outcome = free_now(range, address, likely, tag, WAITED_FOR_ALL, waited_ns);
    } else if (outcome == MUST_WAIT) {
        CUresult result = CUDA_SUCCESS;
        outcome = free_own(range, address, likely, tag, &result);
        if (outcome == MUST_WAIT && result == CUDA_SUCCESS)
            outcome = free_among_contexts(range, address, likely, tag, &result);
        if (result != CUDA_SUCCESS)
            return result;
    }
    /* A paused block is looked for last, since hardly any program has one. */
    if (outcome == NO_BLOCK && free_paused(range, address, tag))
        return CUDA_SUCCESS;
    if (outcome == NO_BLOCK) {
        if (!tag->tentative)
            sg_count(device, SG_STAT_double_frees, 1);
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* The page of a huge block can't go back before it is known that the stream's work is complete. */
    bool retires = range->huge && (outcome == FREED_HUGE || outcome == FREED_HOME);
    if (outcome == FREED_EPOCH || (retires && tag->sync == SG_FREE_SYNC_STREAM))
        sg_device_ask(device, SG_ASK_FENCE);
    if (retires)
        sg_device_retire_huge(device, range->region);
    if (outcome == FREED_HOME)
        sg_overflow_return(device);
    return CUDA_SUCCESS;
}

bool sg_core_free_users(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag, struct sg_free_users *ret)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    *ret = (struct sg_free_users){0};
    if (!range) {
        struct sg_device *fixed = sg_core_segments_at(core, address);
        struct sg_block_info block;
        return fixed && sg_segments_block(fixed, address, /* inside */ false, &block) == CUDA_SUCCESS;
    }
    struct sg_device *device = range->device;
    sg_device_lock(device);
    uint32_t id = range_block_at_locked(range, address, 0);
    if (id && tag->sync == SG_FREE_SYNC_STREAM) {
        const struct sg_extent *extent = &device->regions.extents.extent[id];
        bool step;
        ret->own = order_of_free_locked(device, extent, tag, &step);
        ret->in_order = ret->own != 0;
        if (ret->in_order)
            ret->others = (extent->users_mask | possible_users_locked(device, extent, tag, ret->own)) &
                device->clocks.alive & ~sg_slot_bit(ret->own);
        for (uint64_t left = ret->others; left; left &= left - 1) {
            sg_slot other = (sg_slot)__builtin_ctzll(left);
            if (device->clocks.ordered_after[other].at[ret->own] > extent->alloc_seq)
                ret->after_alloc |= sg_slot_bit(other);
        }
    }
    sg_device_unlock(device);
    return id != 0;
}

CUresult sg_core_record_stream(struct sg_core *core, CUdeviceptr address, sg_slot slot)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    if (!range)
        return CUDA_ERROR_NOT_FOUND;
    if (slot >= SG_SLOTS)
        return CUDA_ERROR_INVALID_VALUE;
    struct sg_device *device = range->device;
    sg_device_lock(device);
    uint32_t id = range_block_at_locked(range, address, 0);
    if (id)
        sg_device_record_stream_locked(device, id, slot);
    sg_device_unlock(device);
    return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sg_core_used_cross_device(struct sg_core *core, CUdeviceptr address)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    struct sg_device *fixed = range ? NULL : sg_core_segments_at(core, address);
    if (fixed)
        sg_segments_used_cross_device(fixed, address);
    if (!range)
        return;
    struct sg_device *device = range->device;
    sg_device_lock(device);
    uint32_t id = sg_region_block_around_locked(range->region, (uint32_t)((address - range->begin) >> SG_UNIT_SHIFT));
    if (id && !sg_device_slot_of(device, device->regions.extents.extent[id].stream))
        sg_device_record_stream_locked(device, id, 0);
    sg_device_unlock(device);
}
