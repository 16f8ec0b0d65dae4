/* Two queues with one rule each. `awaits_all` is in the order of its times, so what is complete stands in front.
   `awaits_streams` is looked through, since each block waits for streams of its own. Both give blocks up through
   sg_device_release_locked(), which accounts for them. */
#include "core/streams/pending_frees.h"

#include <assert.h>

#include "core/state/accounts.h"
#include "core/state/clocks.h"

void sg_pending_push_locked(struct sg_device *device, uint32_t id, uint64_t slots, uint64_t seq)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_pending_queue *queue = slots & 1 ? &device->pending.awaits_all : &device->pending.awaits_streams;
    assert(extent->state == SG_EXTENT_PENDING);
    extent->users_mask = slots;
    extent->seq = seq;
    extent->later = 0;
    sg_clocks_need_fence_locked(device, slots);
    if (queue->last)
        device->regions.extents.extent[queue->last].later = id;
    else
        queue->first = id;
    queue->last = id;
}

/* Frees the blocks that waited for all work before `seq`. They are the first of their queue, which is in the order of
   their times. */
static void settle_awaiting_all_locked(struct sg_device *device, uint64_t seq) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t id;
    while ((id = device->pending.awaits_all.first) && device->regions.extents.extent[id].seq <= seq) {
        struct sg_extent *extent = &device->regions.extents.extent[id];
        device->pending.awaits_all.first = extent->later;
        if (!extent->later)
            device->pending.awaits_all.last = 0;
        sg_emit(device, SEGALLOC_RECORD_DONE, 0, extent->stream,
            sg_region_address(device->regions.region[extent->region], extent->begin), extent->requested);
        sg_device_release_locked(device, id, 0, 0);
        device->fences.completions++;
    }
}

void sg_pending_settle_epochs_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t over = 0;
    /* Fences are in the order of their numbers, so an epoch is over if the oldest that is out is younger than its
       last. */
    while (over < device->fences.epoch_count &&
           (device->fences.count == 0 || device->fences.fence[0].number > device->fences.epoch[over].last))
        settle_awaiting_all_locked(device, device->fences.epoch[over++].seq);
    device->fences.epoch_count -= over;
    for (uint32_t i = 0; over && i < device->fences.epoch_count; i++)
        device->fences.epoch[i] = device->fences.epoch[i + over];
}

void sg_pending_complete_locked(struct sg_device *device, uint64_t slots, uint64_t seq)
{
    SG_ASSERT_HELD(&device->lock);
    /* A completion counts as news only if a clock changed, or a block became free. Else a waiter would go round for
       nothing. */
    uint64_t version = device->clocks.version;
    if (slots & 1)
        settle_awaiting_all_locked(device, seq);
    for (uint64_t left = slots & ~sg_slot_bit(0); left; left &= left - 1)
        sg_clocks_complete(&device->clocks, (sg_slot)__builtin_ctzll(left), seq);
    device->fences.completions += device->clocks.version != version;
}

/* Takes the blocks out of the queue that `heir` may have, or with 0 each block's own stream. Returns true if there
   was any. */
static bool settle_awaiting_streams_locked(struct sg_device *device, sg_slot heir) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_stream_clocks *clocks = &device->clocks;
    uint32_t *link = &device->pending.awaits_streams.first, last = 0;
    bool any = false;
    while (*link) {
        uint32_t id = *link;
        struct sg_extent *extent = &device->regions.extents.extent[id];
        sg_slot own = sg_device_slot_of(device, extent->stream), slot = heir ? heir : own;
        const struct sg_after after = {extent->users_mask, extent->seq};
        /* A stream that is destroyed has no next step which could be ordered after the others, so its blocks wait for
           complete work. */
        if (sg_after_usable(clocks, after, clocks->state[slot] == SG_SLOT_ALIVE ? slot : 0)) {
            bool complete = sg_after_complete(clocks, after);
            *link = extent->later;
            /* A stream ordered after everything in this stream's clock is ordered after every user of the block. */
            uint64_t later = clocks->unchanged_since[slot] > after.seq ? clocks->unchanged_since[slot] : after.seq;
            sg_device_release_locked(device, id, complete ? own : slot, complete ? after.seq : later);
            sg_clocks_need_fence_locked(device, complete ? 0 : sg_slot_bit(slot));
            any = true;
        } else {
            last = id;
            link = &extent->later;
        }
    }
    device->pending.awaits_streams.last = last;
    return any;
}

void sg_pending_settle_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    if (device->pending.awaits_streams_version == device->clocks.version)
        return;
    device->pending.awaits_streams_version = device->clocks.version;
    (void)settle_awaiting_streams_locked(device, 0);
}

bool sg_pending_inherit_locked(struct sg_device *device, sg_slot slot)
{
    SG_ASSERT_HELD(&device->lock);
    return slot && device->pending.awaits_streams.first && settle_awaiting_streams_locked(device, slot);
}

/* Frees all blocks of a queue, because nobody is left who could be using them. */
static void forget_queue_locked(struct sg_device *device, struct sg_pending_queue *queue) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t id = queue->first, next; id; id = next) {
        const struct sg_extent *extent = &device->regions.extents.extent[id];
        next = extent->later;
        if (extent->users_mask & SG_USERS_ALL)
            sg_emit(device, SEGALLOC_RECORD_DONE, 0, extent->stream,
                sg_region_address(device->regions.region[extent->region], extent->begin), extent->requested);
        sg_device_release_locked(device, id, 0, 0);
    }
    *queue = (struct sg_pending_queue){0};
}

void sg_pending_forget_locked(struct sg_device *device, CUcontext context)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_stream_clocks *clocks = &device->clocks;
    uint32_t left = 0;
    for (uint64_t slots = sg_clocks_slots_of(clocks, context); slots; slots &= slots - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(slots);
        if (clocks->state[slot] == SG_SLOT_ALIVE)
            sg_clocks_stream_gone(&device->clocks, slot);
        sg_clocks_complete(&device->clocks, slot, device->clocks.seq);
    }
    /* Events die with their context, so they are dropped without a call. */
    for (uint32_t i = 0; i < device->fences.count; i++)
        if (context && device->fences.fence[i].context != context)
            device->fences.fence[left++] = device->fences.fence[i];
    device->fences.count = left;
    left = 0;
    for (uint32_t i = 0; i < device->fences.idle_count; i++)
        if (context && device->fences.idle_event[i].context != context)
            device->fences.idle_event[left++] = device->fences.idle_event[i];
    device->fences.idle_count = left;
    sg_pending_settle_epochs_locked(device);
    if (!context || !sg_context_list_of(&device->core->contexts, device->ordinal)) {
        forget_queue_locked(device, &device->pending.awaits_all);
        forget_queue_locked(device, &device->pending.awaits_streams);
    }
    sg_pending_settle_locked(device);
}
