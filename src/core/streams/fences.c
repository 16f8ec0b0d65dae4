/* From below: fences that have passed, and queries. Then recording: one fence, an epoch, or all that are needed. Then
   waits, and at the end sg_device_ask(), which puts these together.

   No function here trusts what it read before it dropped `lock`. A context may end, and its fences be gone, during
   any call of the driver. So fences are named by their number. A number that is not found any more is done with. */
#include "core/streams/fences.h"

#include "core/state/clocks.h"
#include "core/state/locks.h"
#include "core/streams/followed_streams.h"
#include "core/streams/pending_frees.h"

/* Takes a fence out of the list; false: it has gone with its context. It goes by the fence's number, since the event
   of a context that has just ended may be another one's by now. */
static bool fences_take_locked(struct sg_device *device, uint64_t number, struct sg_fence *ret) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < device->fences.count; i++) {
        if (device->fences.fence[i].number != number)
            continue;
        *ret = device->fences.fence[i];
        device->fences.count--;
        for (; i < device->fences.count; i++)
            device->fences.fence[i] = device->fences.fence[i + 1];
        return true;
    }
    return false;
}

/* Notes that a fence has passed: the work before it is complete, and epochs may be over. Its event is kept for the
   next fence, up to SG_IDLE_EVENTS (64) of them. */
static void fences_complete_asking(struct sg_device *device, uint64_t number) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    struct sg_fence fence;
    bool surplus = false;
    sg_device_lock(device);
    if (fences_take_locked(device, number, &fence)) {
        sg_pending_complete_locked(device, fence.slots, fence.seq);
        sg_pending_settle_epochs_locked(device);
        surplus = device->fences.idle_count == SG_IDLE_EVENTS;
        if (!surplus)
            device->fences.idle_event[device->fences.idle_count++] = (struct sg_idle_event){fence.event, fence.context};
    }
    sg_device_unlock(device);
    if (surplus)
        (void)sg_core_driver(device->core)->event_destroy(fence.event);
}

/* The slots of a fence as bits; bit 0: only streams that are not followed. */
static uint64_t fence_slots(const struct sg_fence *fence)
{
    return fence->slots ? fence->slots : 1;
}

/* Queries the fences that are out, oldest first. A stream's events pass in order, so once one has not passed the
   later ones of that stream are left out. `lock` is dropped for each query, and a fence is found again by its
   number. */
static void fences_query_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    uint64_t busy = 0;
    for (uint32_t i = 0;;) {
        sg_device_lock(device);
        while (i < device->fences.count &&
               (fence_slots(&device->fences.fence[i]) & busy ||
                   sg_context_list_is_ending(&device->core->contexts, device->fences.fence[i].context)))
            i++;
        struct sg_fence fence = i < device->fences.count ? device->fences.fence[i] : (struct sg_fence){0};
        sg_device_unlock(device);
        if (!fence.event)
            return;
        sg_count(device, SG_STAT_calls_event, 1);
        if (sg_core_driver(device->core)->event_query(fence.event) == CUDA_SUCCESS) {
            fences_complete_asking(device, fence.number);
        } else {
            busy |= fence_slots(&fence);
            i++;
        }
    }
}

/* Where as many fences of a stream are out as there may be: the event of the one that leaves the smallest gap (R35).
   So the fences that are out cover the whole time that the work is behind, in steps that grow with it. The oldest
   stays, and so do those that an epoch waits for. NULL: there is room for another. */
static CUevent fence_to_replace_locked(struct sg_device *device, CUcontext context, uint64_t slots) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t needed = device->fences.epoch_count ? device->fences.epoch[device->fences.epoch_count - 1].last : 0,
             least = UINT64_MAX;
    const struct sg_fence *before = NULL, *last = NULL, *found = NULL;
    uint32_t out = 0;
    /* The fences of this stream, oldest first, and behind them the present. The gap of a fence is the time between
       its neighbours. */
    for (uint32_t i = 0; i <= device->fences.count; i++) {
        const struct sg_fence *fence = i < device->fences.count ? &device->fences.fence[i] : NULL;
        if (fence && (fence->context != context || fence->slots != slots))
            continue;
        uint64_t gap = before ? (fence ? fence->seq : device->clocks.seq) - before->seq : UINT64_MAX;
        if (last && last->number > needed && gap < least) {
            least = gap;
            found = last;
        }
        before = last;
        last = fence;
        out += fence != NULL;
    }
    if (out < SG_FENCES_OF_A_STREAM || !found)
        return NULL;
    struct sg_fence fence = *found;
    (void)fences_take_locked(device, fence.number, &fence);
    return fence.event;
}

/* An event of ours in `context`, which is current, to be recorded on the streams of `slots`. *ret_was_fence: it was
   out, and shows nothing any more. */
static CUresult fences_get_event(struct sg_device *device, CUcontext context, uint64_t slots, CUevent *ret,
    bool *ret_was_fence)
{
    sg_device_lock(device);
    CUevent event = fence_to_replace_locked(device, context, slots);
    *ret_was_fence = event != NULL;
    /* An event is of the context that was current when it was made, and serves there only. */
    for (uint32_t i = 0; i < device->fences.idle_count && !event; i++) {
        if (device->fences.idle_event[i].context == context) {
            event = device->fences.idle_event[i].event;
            device->fences.idle_event[i] = device->fences.idle_event[--device->fences.idle_count];
        }
    }
    sg_device_unlock(device);
    if (event) {
        *ret = event;
        return CUDA_SUCCESS;
    }
    sg_count(device, SG_STAT_calls_event, 1);
    return sg_core_driver(device->core)->event_create(ret, CU_EVENT_DISABLE_TIMING);
}

/* The slots that an event covers: the stream of `slot`, or with 0 all of the context. */
static uint64_t fence_covers_locked(const struct sg_device *device, CUcontext context, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return slot ? sg_slot_bit(slot) : sg_clocks_slots_of(&device->clocks, context);
}

/* Records an event in the context, which is current: on the stream of `slot`, or with 0 over all of it. */
static CUresult fences_record_here_asking(struct sg_device *device, CUcontext context, sg_slot slot,
    struct sg_fence *ret) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    const struct sg_driver *driver = sg_core_driver(device->core);
    struct sg_stream_clocks *clocks = &device->clocks;
    struct sg_fence fence = {.context = context};
    /* Which streams the fence is for decides whose oldest event may be taken for it. */
    sg_device_lock(device);
    fence.slots = fence_covers_locked(device, context, slot);
    sg_device_unlock(device);
    bool was_fence;
    CUresult result = fences_get_event(device, context, fence.slots, &fence.event, &was_fence);
    if (result != CUDA_SUCCESS)
        return result;
    sg_device_lock(device);
    /* Asked again: a slot may be another context's by now. The time is read before the driver is called, so work that
       comes between the two is not counted as covered. */
    fence.slots = fence_covers_locked(device, context, slot);
    fence.seq = sg_clocks_read_locked(device, fence.slots);
    CUstream stream = clocks->stream[slot].handle;
    sg_device_unlock(device);
    sg_count(device, SG_STAT_calls_event, 1);
    result = slot ? driver->event_record(fence.event, stream) : driver->ctx_record_event(context, fence.event);
    if (result != CUDA_SUCCESS) {
        (void)driver->event_destroy(fence.event);
        sg_device_lock(device);
        sg_clocks_need_fence_locked(device, was_fence ? fence.slots : 0);
        sg_device_unlock(device);
        return result;
    }
    sg_device_lock(device);
    fence.number = ++device->fences.number;
    device->fences.fence[device->fences.count++] = fence;
    clocks->needs_fence &= ~fence.slots;
    if (fence.slots)
        sg_clocks_fenced(&device->clocks, fence.slots, fence.seq);
    sg_device_unlock(device);
    *ret = fence;
    return CUDA_SUCCESS;
}

/* Records a fence on the stream of `slot`, or with 0 over the context, which is made current for that.
   CUDA_ERROR_NOT_SUPPORTED: as many are out as may be, the driver cannot, or the context is ending. */
static CUresult fences_record_asking(struct sg_device *device, CUcontext context, sg_slot slot, struct sg_fence *ret)
    SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    const struct sg_driver *driver = sg_core_driver(device->core);
    CUcontext current = NULL, popped;
    sg_device_lock(device);
    bool full = device->fences.count == SG_FENCES;
    sg_device_unlock(device);
    if (full || (!slot && !driver->ctx_record_event) || sg_context_list_is_ending(&device->core->contexts, context))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (context && driver->ctx_get_current(&current) == CUDA_SUCCESS && current != context) {
        CUresult result = driver->ctx_push(context);
        if (result != CUDA_SUCCESS)
            return result;
        result = fences_record_here_asking(device, context, slot, ret);
        (void)driver->ctx_pop(&popped);
        return result;
    }
    return fences_record_here_asking(device, context, slot, ret);
}

/* Begins recording. False: a capture is live, which an event of ours could break. Else no capture begins before
   end_recording(). */
static bool begin_recording(struct sg_device *device)
{
    const struct sg_core *core = device->core;
    return !core->callbacks.record_begin || core->callbacks.record_begin();
}

static void end_recording(struct sg_device *device)
{
    if (device->core->callbacks.record_end)
        device->core->callbacks.record_end();
}

/* True if no event of ours may be recorded on a stream. */
static bool is_unfenceable(const struct sg_stream_id *stream)
{
    return stream->per_thread || stream->flags & SG_STREAM_UNFENCEABLE;
}

/* True if an event can be recorded on the stream of a slot by any thread. On a legacy stream that the program does
   not use it would join the program's blocking streams (R36); an event over the context covers that stream. */
static bool is_recordable(const struct sg_stream_clocks *clocks, sg_slot slot)
{
    bool used = (clocks->was_used | atomic_load_explicit(&clocks->dirty, memory_order_acquire)) >> slot & 1;
    return clocks->state[slot] == SG_SLOT_ALIVE && used && !is_unfenceable(&clocks->stream[slot]);
}

bool sg_fences_can_cover_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_core *core = device->core;
    return core->driver->ctx_record_event && !atomic_load_explicit(&core->contexts.missed, memory_order_relaxed);
}

bool sg_fences_can_wait(const struct sg_device *device)
{
    const struct sg_core *core = device->core;
    return core->callbacks.begin_aside && !core->driver->ctx_record_event &&
           !atomic_load_explicit(&core->contexts.missed, memory_order_relaxed);
}

/* Waits for the work of every context, and notes that all that was pending before is free. It runs on a thread of its
   own, so it enters each context itself, and skips those that are gone. */
static CUresult wait_for_contexts(void *user)
{
    struct sg_device *device = user;
    struct sg_core *core = device->core;
    CUresult result = CUDA_SUCCESS;
    sg_device_lock(device);
    uint64_t seq = device->pending.awaits_all.last ? device->regions.extents.extent[device->pending.awaits_all.last].seq
                                                   : 0;
    device->fences.aside = seq;
    sg_device_unlock(device);
    /* The time was read first, so frees that come during the waits are not counted as complete. */
    uint32_t count = sg_context_list_count(&core->contexts);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUcontext context = sg_context_list_at(&core->contexts, i);
        int use = context ? core->callbacks.enter_context(context) : -1;
        if (use < 0)
            continue;
        result = sg_core_driver(core)->ctx_synchronize();
        core->callbacks.leave_context(use);
    }
    sg_device_lock(device);
    if (result == CUDA_SUCCESS)
        sg_pending_complete_locked(device, sg_slot_bit(0), seq);
    sg_device_unlock(device);
    return result;
}

/* Records a fence over every context that there is. False: one could not be recorded, so all of them together show
   nothing. */
static bool fences_over_contexts_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    struct sg_core *core = device->core;
    struct sg_fence fence;
    uint32_t count = sg_context_list_count(&core->contexts), seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        CUcontext context = sg_context_list_at(&core->contexts, i);
        seen += context != NULL;
        if (context && fences_record_asking(device, context, 0, &fence) != CUDA_SUCCESS)
            return false;
    }
    return seen || fences_record_asking(device, NULL, 0, &fence) == CUDA_SUCCESS;
}

/* Begins an epoch: frees that are pending so far take effect once the fences have passed that are recorded here, and
   those before them. With SG_EPOCHS (64) open, new frees join the youngest: it is recorded anew, later. */
static void fences_record_epoch_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    sg_device_lock(device);
    bool owed = device->clocks.needs_fence & sg_slot_bit(0) && device->pending.awaits_all.last;
    uint64_t seq = owed ? device->regions.extents.extent[device->pending.awaits_all.last].seq : 0;
    device->fences.epoch_count -= seq && device->fences.epoch_count == SG_EPOCHS;
    sg_device_unlock(device);
    if (!seq)
        return;
    if (sg_fences_can_wait(device))
        (void)device->core->callbacks.begin_aside(wait_for_contexts, device);
    if (!device->core->driver->ctx_record_event || !fences_over_contexts_asking(device))
        return;
    sg_device_lock(device);
    device->fences.epoch[device->fences.epoch_count++] = (struct sg_epoch){seq, device->fences.number};
    /* A free that came meanwhile needs an epoch of its own, so the mark stays for it. */
    if (device->regions.extents.extent[device->pending.awaits_all.last].seq <= seq)
        device->clocks.needs_fence &= ~sg_slot_bit(0);
    sg_clocks_fenced(&device->clocks, sg_slot_bit(0), seq);
    sg_pending_settle_epochs_locked(device);
    sg_device_unlock(device);
}

/* The next stream of `wanted`, a set of slots, that needs a fence. Slot 0 with its context: none can go on the stream
   itself. False: none does. */
static bool next_wanted_locked(struct sg_device *device, uint64_t *wanted, CUcontext *ret_context, sg_slot *ret_slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_stream_clocks *clocks = &device->clocks;
    *wanted &= clocks->needs_fence & ~sg_slot_bit(0);
    if (!*wanted)
        return false;
    sg_slot slot = (sg_slot)__builtin_ctzll(*wanted);
    *ret_context = clocks->stream[slot].context;
    *ret_slot = is_recordable(clocks, slot) ? slot : 0;
    *wanted &= *wanted - 1;
    return true;
}

/* Records all fences that are needed, an epoch's first. A fence over a context clears the need of all its streams, so
   each is asked again before its turn. */
static void fences_record_all_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    uint64_t wanted = UINT64_MAX;
    if (!begin_recording(device))
        return;
    fences_record_epoch_asking(device);
    for (;;) {
        CUcontext context;
        sg_slot slot;
        struct sg_fence fence;
        sg_device_lock(device);
        bool any = next_wanted_locked(device, &wanted, &context, &slot);
        sg_device_unlock(device);
        if (!any)
            break;
        (void)fences_record_asking(device, context, slot, &fence);
    }
    end_recording(device);
}

/* Waits for a context, no longer than wait_limit. `asking` is dropped meanwhile: a thread that is about to end the
   context waits for it, and the work may depend on that thread. */
static CUresult wait_for_context_asking(struct sg_device *device, CUcontext context) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    const struct sg_core *core = device->core;
    if (!core->callbacks.wait_for_context)
        return sg_core_driver(core)->ctx_synchronize();
    sg_asking_unlock(device);
    CUresult result = core->callbacks.wait_for_context(context);
    sg_asking_lock(device);
    return result;
}

/* Waits for every context, on a helper thread if there can be one. `asking` is dropped meanwhile. */
static CUresult wait_for_all_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    const struct sg_core *core = device->core;
    sg_asking_unlock(device);
    CUresult result = core->callbacks.aside ? core->callbacks.aside(wait_for_contexts, device)
                                            : wait_for_contexts(device);
    sg_asking_lock(device);
    return result;
}

/* Beside a live capture no wait may begin, but one that was begun before it goes on. Waits for that, without `asking`. True if
   it has ended. */
static bool wait_for_begun_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    const struct sg_core *core = device->core;
    if (!core->callbacks.await_begun || !sg_fences_can_wait(device))
        return false;
    sg_asking_unlock(device);
    bool ended = core->callbacks.await_begun();
    sg_asking_lock(device);
    return ended;
}

/* Waits for the oldest fence of a context that is not ending. If all contexts of fences are ending, it waits for that
   of the oldest to end or to stay. Without a fence none could be recorded: it waits for every context, or for the
   current one. Returns true if that succeeded, and there may be more to wait for.

   The clock is read before the wait, so what streams were given meanwhile does not count as complete. */
static bool wait_for_oldest_asking(struct sg_device *device) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    const struct sg_core *core = device->core;
    CUcontext context = NULL;
    (void)sg_core_driver(core)->ctx_get_current(&context);
    sg_device_lock(device);
    uint32_t oldest = 0;
    while (oldest < device->fences.count &&
           sg_context_list_is_ending(&device->core->contexts, device->fences.fence[oldest].context))
        oldest++;
    CUevent event = oldest < device->fences.count ? device->fences.fence[oldest].event : NULL;
    const struct sg_fence *fence = device->fences.count ? &device->fences.fence[event ? oldest : 0] : NULL;
    uint64_t number = fence ? fence->number : 0;
    context = fence ? fence->context : context;
    bool all = !fence && device->pending.awaits_all.first && sg_fences_can_wait(device);
    bool has_work = fence || (device->clocks.needs_fence != 0 &&
                                 (device->pending.awaits_all.first || device->pending.awaits_streams.first ||
                                     device->clocks.needs_fence & ~sg_slot_bit(0)));
    sg_device_unlock(device);
    if (!event && !has_work)
        return false;
    if (!event && !begin_recording(device))
        return wait_for_begun_asking(device);
    if (!event)
        end_recording(device);
    struct sg_vector_clock clock;
    sg_core_context_clock(device->core, device->ordinal, context, &clock);
    uint64_t began = core->callbacks.now_ns ? core->callbacks.now_ns() : 0;
    CUresult result = event ? sg_core_driver(core)->event_synchronize(event)
                      : all ? wait_for_all_asking(device)
                            : wait_for_context_asking(device, context);
    sg_count(device, SG_STAT_host_waits, 1);
    sg_count(device, SG_STAT_calls_sync, 1);
    sg_count(device, SG_STAT_host_wait_ns, core->callbacks.now_ns ? core->callbacks.now_ns() - began : 0);
    if (number && result == CUDA_SUCCESS)
        fences_complete_asking(device, number);
    else if (result == CUDA_ERROR_NOT_READY)
        sg_count(device, SG_STAT_waits_given_up, 1);
    /* A wait for one context settles nothing in another. So there is progress only if it settled something here. */
    bool progress = number != 0 || all;
    sg_device_lock(device);
    for (unsigned slot = 0; slot < SG_SLOTS && !event && result == CUDA_SUCCESS; slot++) {
        if (clock.at[slot] && device->clocks.needs_fence >> slot & 1) {
            progress = true;
            device->clocks.needs_fence &= ~sg_slot_bit(slot);
            sg_pending_complete_locked(device, sg_slot_bit(slot), clock.at[slot]);
        }
    }
    sg_device_unlock(device);
    return result == CUDA_SUCCESS && progress;
}

/* True if something was found complete since. */
static bool has_completed_since(struct sg_device *device, uint64_t since)
{
    sg_device_lock(device);
    bool has = device->fences.completions != since;
    sg_device_unlock(device);
    return has;
}

bool sg_device_ask(struct sg_device *device, enum sg_ask how)
{
    if (device->core->replay)
        return false; /* the trace says what is complete */
    sg_device_lock(device);
    uint64_t before = device->fences.completions;
    bool nothing = device->fences.count == 0 && (how == SG_ASK_QUERY || device->clocks.needs_fence == 0);
    sg_device_unlock(device);
    if (nothing)
        return false;
    if (!sg_asking_try(device)) {
        if (how != SG_ASK_WAIT)
            return false; /* another thread asks already */
        /* The other thread's news may be enough, so its wait counts as this one's. */
        sg_asking_lock(device);
        sg_asking_unlock(device);
        return true;
    }
    fences_query_asking(device);
    if (how != SG_ASK_QUERY) {
        fences_record_all_asking(device);
        if (!has_completed_since(device, before))
            fences_query_asking(device);
    }
    while (how == SG_ASK_WAIT && !has_completed_since(device, before) && wait_for_oldest_asking(device)) {
    }
    bool any = has_completed_since(device, before);
    sg_asking_unlock(device);
    return any;
}

void sg_device_drain(struct sg_device *device)
{
    for (uint32_t most = SG_FENCES; most-- > 0;) {
        sg_device_lock(device);
        bool any = device->fences.count != 0 || (device->pending.awaits_all.first && sg_fences_can_wait(device));
        sg_device_unlock(device);
        if (!any || !sg_device_ask(device, SG_ASK_WAIT))
            return;
    }
}

/* A stream, as it is looked at before it is waited for. */
struct awaited {
    bool busy; /* it may have work that is not complete */
    CUcontext context;
    sg_slot on; /* the stream, or 0: its context, where no event can go on the stream itself */
};

/* Looks at a stream. Its clock is read, so work that it is given later does not make it busy. */
static struct awaited awaited_locked(struct sg_device *device, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_stream_clocks *clocks = &device->clocks;
    uint64_t seq = sg_clocks_read_locked(device, sg_slot_bit(slot));
    return (struct awaited){
        .busy = clocks->state[slot] != SG_SLOT_UNUSED && clocks->complete[slot] < seq,
        .context = clocks->stream[slot].context,
        .on = is_recordable(clocks, slot) ? slot : 0,
    };
}

/* Waits for a context, and notes that what its streams were given before is complete. The clock is read first. */
static CUresult await_context_asking(struct sg_device *device, CUcontext context) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    struct sg_core *core = device->core;
    struct sg_vector_clock clock;
    sg_core_context_clock(core, device->ordinal, context, &clock);
    CUresult result;
    if (core->callbacks.wait_for_context || !context)
        result = wait_for_context_asking(device, context);
    else
        result = sg_driver_synchronize(sg_core_driver(core), context);
    if (result == CUDA_SUCCESS)
        sg_core_completed(core, device->ordinal, &clock);
    return result;
}

/* Waits for a stream by a fence of its own. Where none can be had its context is waited for. */
static CUresult await_slot_asking(struct sg_device *device, const struct awaited *stream) SG_REQUIRES(asking)
{
    SG_ASSERT_HELD(&device->fences.asking);
    struct sg_fence fence;
    if (!begin_recording(device))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CUresult result = fences_record_asking(device, stream->context, stream->on, &fence);
    end_recording(device);
    if (result != CUDA_SUCCESS)
        return sg_driver_is_sticky(result) ? result : await_context_asking(device, stream->context);
    result = sg_core_driver(device->core)->event_synchronize(fence.event);
    if (result == CUDA_SUCCESS)
        fences_complete_asking(device, fence.number);
    return result;
}

CUresult sg_fences_await(struct sg_device *device, uint64_t slots)
{
    CUresult result = CUDA_SUCCESS;
    if (device->core->replay)
        return CUDA_SUCCESS;
    sg_asking_lock(device);
    for (uint64_t left = slots & ~sg_slot_bit(0); left && result == CUDA_SUCCESS; left &= left - 1) {
        sg_device_lock(device);
        struct awaited stream = awaited_locked(device, (sg_slot)__builtin_ctzll(left));
        sg_device_unlock(device);
        if (stream.busy)
            result = await_slot_asking(device, &stream);
    }
    sg_asking_unlock(device);
    return result;
}

CUresult sg_fences_await_contexts(struct sg_device *device, bool everywhere)
{
    const struct sg_context_list *contexts = &device->core->contexts;
    CUresult result = CUDA_SUCCESS;
    bool any = false;
    if (device->core->replay)
        return CUDA_SUCCESS;
    /* A wait for a context would ruin a live capture. One that begins from here on is waited for by the driver's table. */
    if (!begin_recording(device))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    end_recording(device);
    sg_asking_lock(device);
    uint32_t count = sg_context_list_count(contexts);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUcontext context = sg_context_list_at(contexts, i);
        if (!context || (!everywhere && sg_context_list_device(contexts, i) != device->ordinal))
            continue;
        any = true;
        result = await_context_asking(device, context);
    }
    if (!any && result == CUDA_SUCCESS)
        result = await_context_asking(device, NULL);
    sg_asking_unlock(device);
    return result;
}

void sg_fences_end_slot(struct sg_device *device, sg_slot slot)
{
    const struct sg_core *core = device->core;
    struct sg_stream_clocks *clocks = &device->clocks;
    struct sg_fence fence;
    /* With `asking` nobody records on the stream from here on, which its destruction would make an error. */
    sg_asking_lock(device);
    sg_device_lock(device);
    bool alive = clocks->state[slot] == SG_SLOT_ALIVE,
         ask = alive && is_recordable(clocks, slot) && !core->disabled && !core->replay;
    sg_clocks_need_fence_locked(device, alive ? sg_slot_bit(slot) : 0);
    CUcontext context = clocks->stream[slot].context;
    sg_device_unlock(device);
    if (ask && begin_recording(device)) {
        (void)fences_record_asking(device, context, slot,
            &fence); /* if it can't be, an event over the context follows */
        end_recording(device);
    }
    sg_device_lock(device);
    if (alive)
        sg_clocks_stream_gone(&device->clocks, slot);
    sg_device_unlock(device);
    sg_asking_unlock(device);
}
