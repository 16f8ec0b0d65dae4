/* Questions to the driver about work: fences on streams and contexts, *marks*. They are recorded when they can give
   news, a few outstanding, oldest first. pending_frees.c acts on their answers. Driver calls are made with `asking`
   held, never with `lock`. */
#include "device.h"

/* Takes a mark out of the list; false: it has gone with its context. By its number, since the event of a context that
   has just ended may be another one's by now. Under the lock. */
static bool take_mark(struct sg_device *device, uint64_t number, struct sg_mark *ret)
{
    for (uint32_t i = 0; i < device->mark_count; i++) {
        if (device->mark[i].number != number)
            continue;
        *ret = device->mark[i];
        device->mark_count--;
        for (; i < device->mark_count; i++)
            device->mark[i] = device->mark[i + 1];
        return true;
    }
    return false;
}

/* The work before a mark is complete. */
static void settle_mark(struct sg_device *device, uint64_t number)
{
    struct sg_mark mark;
    bool surplus = false;
    sg_lock(&device->lock);
    if (take_mark(device, number, &mark)) {
        sg_pending_complete(device, mark.slots, mark.time);
        sg_pending_settle_epochs(device);
        surplus = device->idle_count == SG_IDLE_EVENTS;
        if (!surplus)
            device->idle_event[device->idle_count++] = (struct sg_idle_event){mark.event, mark.context};
    }
    sg_unlock(&device->lock);
    if (surplus)
        (void)device->core->driver->event_destroy(mark.event);
}

/* What a mark is about, as bits; bit 0: streams that aren't followed. */
static uint64_t about(const struct sg_mark *mark)
{
    return mark->slots ? mark->slots : 1;
}

/* Asks about the marks, oldest first, of each stream until one is not complete. */
static void query_marks(struct sg_device *device)
{
    uint64_t busy = 0;
    for (uint32_t i = 0;;) {
        sg_lock(&device->lock);
        while (i < device->mark_count &&
               (about(&device->mark[i]) & busy || sg_core_is_ending(device->core, device->mark[i].context)))
            i++;
        struct sg_mark mark = i < device->mark_count ? device->mark[i] : (struct sg_mark){0};
        sg_unlock(&device->lock);
        if (!mark.event)
            return;
        sg_count(device, SG_STAT_calls_event, 1);
        if (device->core->driver->event_query(mark.event) == CUDA_SUCCESS) {
            settle_mark(device, mark.number);
        } else {
            busy |= about(&mark);
            i++;
        }
    }
}

/* Where as many marks of a stream are out as there may be: the event of the one that leaves the smallest gap (R35).
   So the marks that are out cover the whole time that the work is behind, in steps that grow with it. The oldest
   stays, and so do those that an epoch waits for. NULL: there is room for another. Under the lock. */
static CUevent least_missed(struct sg_device *device, CUcontext context, uint64_t slots)
{
    uint64_t needed = device->epoch_count ? device->epoch[device->epoch_count - 1].last : 0, least = UINT64_MAX;
    const struct sg_mark *before = NULL, *last = NULL, *found = NULL;
    uint32_t out = 0;
    for (uint32_t i = 0; i <= device->mark_count; i++) {
        const struct sg_mark *mark = i < device->mark_count ? &device->mark[i] : NULL;
        if (mark && (mark->context != context || mark->slots != slots))
            continue;
        uint64_t gap = before ? (mark ? mark->time : device->serial) - before->time : UINT64_MAX;
        if (last && last->number > needed && gap < least) {
            least = gap;
            found = last;
        }
        before = last;
        last = mark;
        out += mark != NULL;
    }
    if (out < SG_MARKS_OF_A_STREAM || !found)
        return NULL;
    struct sg_mark mark = *found;
    (void)take_mark(device, mark.number, &mark);
    return mark.event;
}

/* An event of ours in `context`, which is current, to be recorded on the streams of `slots`. *ret_was_mark: it was out,
   and tells nothing any more. */
static CUresult get_event(struct sg_device *device, CUcontext context, uint64_t slots, CUevent *ret, bool *ret_was_mark)
{
    sg_lock(&device->lock);
    CUevent event = least_missed(device, context, slots);
    *ret_was_mark = event != NULL;
    for (uint32_t i = 0; i < device->idle_count && !event; i++) {
        if (device->idle_event[i].context == context) {
            event = device->idle_event[i].event;
            device->idle_event[i] = device->idle_event[--device->idle_count];
        }
    }
    sg_unlock(&device->lock);
    if (event) {
        *ret = event;
        return CUDA_SUCCESS;
    }
    sg_count(device, SG_STAT_calls_event, 1);
    return device->core->driver->event_create(ret, CU_EVENT_DISABLE_TIMING);
}

/* What an event tells of: the stream of `slot`, or with 0 the context's. Under the lock. */
static uint64_t told_by(const struct sg_device *device, CUcontext context, sg_slot slot)
{
    return slot ? sg_slot_bit(slot) : sg_order_slots_of(&device->order, context);
}

/* Records an event in the context, which is current: on the stream of `slot`, or with 0 over all of it. */
static CUresult record_here(struct sg_device *device, CUcontext context, sg_slot slot, struct sg_mark *ret)
{
    const struct sg_driver *driver = device->core->driver;
    struct sg_order *order = &device->order;
    struct sg_mark mark = {.context = context};
    sg_lock(&device->lock);
    mark.slots = told_by(device, context, slot);
    sg_unlock(&device->lock);
    bool was_mark;
    CUresult result = get_event(device, context, mark.slots, &mark.event, &was_mark);
    if (result != CUDA_SUCCESS)
        return result;
    sg_lock(&device->lock);
    mark.slots = told_by(device, context, slot); /* a slot may be another context's by now */
    mark.time = sg_order_read(device, mark.slots);
    CUstream stream = order->stream[slot].handle;
    sg_unlock(&device->lock);
    sg_count(device, SG_STAT_calls_event, 1);
    result = slot ? driver->event_record(mark.event, stream) : driver->ctx_record_event(context, mark.event);
    if (result != CUDA_SUCCESS) {
        (void)driver->event_destroy(mark.event);
        sg_lock(&device->lock);
        sg_order_owe(device, was_mark ? mark.slots : 0);
        sg_unlock(&device->lock);
        return result;
    }
    sg_lock(&device->lock);
    mark.number = ++device->mark_number;
    device->mark[device->mark_count++] = mark;
    order->owed &= ~mark.slots;
    if (mark.slots)
        sg_order_marked(device, mark.slots, mark.time);
    sg_unlock(&device->lock);
    *ret = mark;
    return CUDA_SUCCESS;
}

static CUresult record_mark(struct sg_device *device, CUcontext context, sg_slot slot, struct sg_mark *ret)
{
    const struct sg_driver *driver = device->core->driver;
    CUcontext current = NULL, popped;
    sg_lock(&device->lock);
    bool full = device->mark_count == SG_MARKS;
    sg_unlock(&device->lock);
    if (full || (!slot && !driver->ctx_record_event) || sg_core_is_ending(device->core, context))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (context && driver->ctx_get_current(&current) == CUDA_SUCCESS && current != context) {
        CUresult result = driver->ctx_push(context);
        if (result != CUDA_SUCCESS)
            return result;
        result = record_here(device, context, slot, ret);
        (void)driver->ctx_pop(&popped);
        return result;
    }
    return record_here(device, context, slot, ret);
}

static bool begin_recording(struct sg_device *device)
{
    const struct sg_core *core = device->core;
    return !core->record_begin || core->record_begin();
}

static void end_recording(struct sg_device *device)
{
    if (device->core->record_end)
        device->core->record_end();
}

/* Whether a stream takes no event of ours from whatever thread. */
static bool is_unmarked(const struct sg_stream_id *stream)
{
    return stream->per_thread || stream->flags & SG_STREAM_UNMARKED;
}

/* Whether an event can be recorded on the stream of a slot by any thread. On a legacy stream that the program does
   not use it would join its blocking streams (R36); an event over the context covers that stream. Under the lock. */
static bool is_recordable(const struct sg_order *order, sg_slot slot)
{
    bool used = (order->worked | atomic_load_explicit(&order->fresh, memory_order_acquire)) >> slot & 1;
    return order->state[slot] == SG_SLOT_ALIVE && used && !is_unmarked(&order->stream[slot]);
}

/* The slots that no mark covers, nor can: streams that went with work after which none was recorded, and threads'
   own streams. Those first met after `time` are left out. Under the lock. */
static uint64_t untold(const struct sg_order *order, uint64_t time)
{
    uint64_t slots = 0, fresh = atomic_load_explicit(&order->fresh, memory_order_acquire);
    for (uint64_t left = order->alive; left; left &= left - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(left);
        bool gone = order->state[slot] == SG_SLOT_GONE;
        if (gone ? (fresh | order->unproven) >> slot & 1 &&
                       (fresh >> slot & 1 || order->marked[slot] < order->folded[slot])
                 : is_unmarked(&order->stream[slot]) && order->met_at[slot] <= time)
            slots |= sg_slot_bit(slot);
    }
    return slots;
}

bool sg_marks_can_cover(const struct sg_device *device, bool followed)
{
    const struct sg_core *core = device->core;
    if (atomic_load_explicit(&core->contexts_missed, memory_order_relaxed))
        return false;
    return core->driver->ctx_record_event ||
           (followed && !sg_device_contexts(device, /* own */ false) && !untold(&device->order, UINT64_MAX));
}

bool sg_marks_can_wait(const struct sg_device *device)
{
    const struct sg_core *core = device->core;
    return core->begin_aside && !core->driver->ctx_record_event &&
           !atomic_load_explicit(&core->contexts_missed, memory_order_relaxed);
}

/* Waits for the work of every context: what was pending before is free then. For a thread of its own. */
static CUresult wait_for_contexts(void *user)
{
    struct sg_device *device = user;
    struct sg_core *core = device->core;
    CUresult result = CUDA_SUCCESS;
    sg_lock(&device->lock);
    uint64_t time = device->pending.last ? device->nodes.node[device->pending.last].time : 0;
    sg_unlock(&device->lock);
    uint32_t count = atomic_load_explicit(&core->context_count, memory_order_acquire);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        CUcontext context = atomic_load_explicit(&core->context[i], memory_order_relaxed);
        int use = context ? core->enter_context(context) : -1;
        if (use < 0)
            continue;
        result = core->driver->ctx_synchronize();
        core->leave_context(use);
    }
    sg_lock(&device->lock);
    if (result == CUDA_SUCCESS)
        sg_pending_complete(device, sg_slot_bit(0), time);
    sg_unlock(&device->lock);
    return result;
}

/* Marks over every context that there is. Whether that was done. */
static bool mark_contexts(struct sg_device *device)
{
    struct sg_core *core = device->core;
    struct sg_mark mark;
    uint32_t count = atomic_load_explicit(&core->context_count, memory_order_acquire), seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        CUcontext context = atomic_load_explicit(&core->context[i], memory_order_relaxed);
        seen += context != NULL;
        if (context && record_mark(device, context, 0, &mark) != CUDA_SUCCESS)
            return false;
    }
    return seen || record_mark(device, NULL, 0, &mark) == CUDA_SUCCESS;
}

/* Marks on every stream that has work left, but for threads' own ones that were first met after `time`. */
static bool mark_streams(struct sg_device *device, uint64_t time)
{
    struct sg_order *order = &device->order;
    struct sg_mark mark;
    sg_lock(&device->lock);
    (void)sg_order_read(device, order->alive);
    bool can = !untold(order, time) && !sg_device_contexts(device, /* own */ false);
    uint64_t left = order->unproven & order->alive;
    sg_unlock(&device->lock);
    for (; can && left; left &= left - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(left);
        sg_lock(&device->lock);
        bool records = is_recordable(order, slot);
        CUcontext context = order->stream[slot].context;
        sg_unlock(&device->lock);
        if (records)
            can = record_mark(device, context, slot, &mark) == CUDA_SUCCESS;
    }
    return can;
}

/* Begins an epoch: what is pending so far is free once the marks are complete that are recorded here, and those before
   them. Where as many are out as there may be, the youngest takes its place. */
static void record_epoch(struct sg_device *device)
{
    sg_lock(&device->lock);
    uint64_t time =
        device->order.owed & sg_slot_bit(0) && device->pending.last ? device->nodes.node[device->pending.last].time : 0;
    /* enough, of what is pending */
    bool streams = time && device->nodes.node[device->pending.first].time > device->uncovered;
    device->epoch_count -= time && device->epoch_count == SG_EPOCHS;
    sg_unlock(&device->lock);
    if (!time)
        return;
    if (!(device->core->driver->ctx_record_event ? mark_contexts(device) : streams && mark_streams(device, time))) {
        if (sg_marks_can_wait(device))
            (void)device->core->begin_aside(wait_for_contexts, device);
        return;
    }
    sg_lock(&device->lock);
    device->epoch[device->epoch_count++] = (struct sg_epoch){time, device->mark_number};
    if (device->nodes.node[device->pending.last].time <= time) /* none was freed meanwhile */
        device->order.owed &= ~sg_slot_bit(0);
    sg_order_marked(device, sg_slot_bit(0), time);
    sg_pending_settle_epochs(device);
    sg_unlock(&device->lock);
}

/* The next of `wanted` to be marked: its slot, or its context with slot 0. False: none. Under the lock. */
static bool next_wanted(struct sg_device *device, uint64_t *wanted, CUcontext *ret_context, sg_slot *ret_slot)
{
    const struct sg_order *order = &device->order;
    *wanted &= order->owed & ~sg_slot_bit(0);
    if (!*wanted)
        return false;
    sg_slot slot = (sg_slot)__builtin_ctzll(*wanted);
    *ret_context = order->stream[slot].context;
    *ret_slot = is_recordable(order, slot) ? slot : 0;
    *wanted &= *wanted - 1;
    return true;
}

/* Records what is needed to cover everything that has not been marked since. */
static void record_marks(struct sg_device *device)
{
    uint64_t wanted = UINT64_MAX;
    if (!begin_recording(device))
        return;
    record_epoch(device);
    for (;;) {
        CUcontext context;
        sg_slot slot;
        struct sg_mark mark;
        sg_lock(&device->lock);
        bool any = next_wanted(device, &wanted, &context, &slot);
        sg_unlock(&device->lock);
        if (!any)
            break;
        (void)record_mark(device, context, slot, &mark);
    }
    end_recording(device);
}

/* Waits for a context, no longer than whoever uses the core allows. Who is about to end it waits for those that ask
   first. */
static CUresult wait_for_context(struct sg_device *device, CUcontext context)
{
    const struct sg_core *core = device->core;
    if (!core->wait_for_context)
        return core->driver->ctx_synchronize();
    sg_unlock(&device->asking);
    CUresult result = core->wait_for_context(context);
    sg_lock(&device->asking);
    return result;
}

/* Waits for every context, on a helper thread if there can be one. */
static CUresult wait_for_all(struct sg_device *device)
{
    const struct sg_core *core = device->core;
    sg_unlock(&device->asking);
    CUresult result = core->aside ? core->aside(wait_for_contexts, device) : wait_for_contexts(device);
    sg_lock(&device->asking);
    return result;
}

/* Waits for the oldest mark of a context that is not ending. If all contexts of marks are ending, waits for that of
   the oldest to end or to stay. Without a mark none could be recorded: waits for every context, or for the current
   one. Whether that succeeded and there may be more to wait for. */
static bool wait_for_oldest(struct sg_device *device)
{
    const struct sg_core *core = device->core;
    CUcontext context = NULL;
    (void)core->driver->ctx_get_current(&context);
    sg_lock(&device->lock);
    uint32_t oldest = 0;
    while (oldest < device->mark_count && sg_core_is_ending(device->core, device->mark[oldest].context))
        oldest++;
    CUevent event = oldest < device->mark_count ? device->mark[oldest].event : NULL;
    const struct sg_mark *mark = device->mark_count ? &device->mark[event ? oldest : 0] : NULL;
    uint64_t number = mark ? mark->number : 0;
    context = mark ? mark->context : context;
    bool all = !mark && device->pending.first && sg_marks_can_wait(device);
    bool owed = mark || (device->order.owed != 0 &&
                            (device->pending.first || device->blocked.first || device->order.owed & ~sg_slot_bit(0)));
    sg_unlock(&device->lock);
    if (!event && (!owed || !begin_recording(device)))
        return false;
    if (!event)
        end_recording(device);
    struct sg_clock clock;
    sg_core_context_clock(device->core, device->ordinal, context, &clock);
    uint64_t began = core->now_ns ? core->now_ns() : 0;
    CUresult result = event ? core->driver->event_synchronize(event)
                      : all ? wait_for_all(device)
                            : wait_for_context(device, context);
    sg_count(device, SG_STAT_host_waits, 1);
    sg_count(device, SG_STAT_calls_sync, 1);
    sg_count(device, SG_STAT_host_wait_ns, core->now_ns ? core->now_ns() - began : 0);
    if (number && result == CUDA_SUCCESS)
        settle_mark(device, number);
    else if (result == CUDA_ERROR_NOT_READY)
        sg_count(device, SG_STAT_waits_given_up, 1);
    bool progress = number != 0 || all; /* what is owed in another context this one's wait does not settle */
    sg_lock(&device->lock);
    for (unsigned slot = 0; slot < SG_SLOTS && !event && result == CUDA_SUCCESS; slot++) {
        if (clock.at[slot] && device->order.owed >> slot & 1) {
            progress = true;
            device->order.owed &= ~sg_slot_bit(slot);
            sg_pending_complete(device, sg_slot_bit(slot), clock.at[slot]);
        }
    }
    sg_unlock(&device->lock);
    return result == CUDA_SUCCESS && progress;
}

static bool has_learnt(struct sg_device *device, uint64_t since)
{
    sg_lock(&device->lock);
    bool has = device->learnt != since;
    sg_unlock(&device->lock);
    return has;
}

bool sg_device_ask(struct sg_device *device, enum sg_ask how)
{
    if (device->core->replay)
        return false; /* it is told */
    sg_lock(&device->lock);
    uint64_t before = device->learnt;
    bool nothing = device->mark_count == 0 && (how == SG_ASK_QUERY || device->order.owed == 0);
    sg_unlock(&device->lock);
    if (nothing)
        return false;
    if (!sg_lock_try(&device->asking)) {
        if (how != SG_ASK_WAIT)
            return false; /* somebody is at it */
        sg_lock(&device->asking); /* what that thread has waited for is worth another try */
        sg_unlock(&device->asking);
        return true;
    }
    query_marks(device);
    if (how != SG_ASK_QUERY) {
        record_marks(device);
        if (!has_learnt(device, before))
            query_marks(device);
    }
    while (how == SG_ASK_WAIT && !has_learnt(device, before) && wait_for_oldest(device)) {
    }
    bool any = has_learnt(device, before);
    sg_unlock(&device->asking);
    return any;
}

void sg_device_drain(struct sg_device *device)
{
    if (!begin_recording(device)) /* nothing may be waited for while a capture is live */
        return;
    end_recording(device);
    for (uint32_t most = SG_MARKS; most-- > 0;) {
        sg_lock(&device->lock);
        bool any = device->mark_count != 0 || (device->pending.first && sg_marks_can_wait(device));
        sg_unlock(&device->lock);
        if (!any || !sg_device_ask(device, SG_ASK_WAIT))
            return;
    }
}

bool sg_device_make_wait(struct sg_device *device, sg_slot slot)
{
    const struct sg_core *core = device->core;
    struct sg_order *order = &device->order;
    bool any = false;
    if (!slot || !core->may_wait || !core->may_wait())
        return false;
    sg_lock(&device->asking);
    if (!begin_recording(device)) {
        sg_unlock(&device->asking);
        return false;
    }
    for (sg_slot other = 1; other < SG_SLOTS; other++) {
        struct sg_clock clock;
        struct sg_mark mark;
        sg_lock(&device->lock);
        bool useful = other != slot && is_recordable(order, other) && is_recordable(order, slot) &&
                      sg_device_has_free_of(device, other);
        CUcontext context = order->stream[other].context;
        CUstream stream = order->stream[slot].handle;
        clock = order->knows[other];
        sg_unlock(&device->lock);
        if (!useful || record_mark(device, context, other, &mark) != CUDA_SUCCESS)
            continue;
        if (core->driver->stream_wait_event(stream, mark.event, 0) != CUDA_SUCCESS)
            continue;
        sg_count(device, SG_STAT_device_waits, 1);
        clock.at[other] = mark.time;
        sg_order_waited(device, slot, &clock);
        any = true;
    }
    end_recording(device);
    sg_unlock(&device->asking);
    return any;
}

void sg_core_slot_gone(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device || !slot || slot >= SG_SLOTS)
        return;
    struct sg_order *order = &device->order;
    struct sg_mark mark;
    sg_lock(&device->asking); /* nobody records on it from here on */
    sg_lock(&device->lock);
    bool alive = order->state[slot] == SG_SLOT_ALIVE,
         ask = alive && is_recordable(order, slot) && !core->disabled && !core->replay;
    sg_order_owe(device, alive ? sg_slot_bit(slot) : 0);
    CUcontext context = order->stream[slot].context;
    sg_unlock(&device->lock);
    if (ask && begin_recording(device)) {
        (void)record_mark(device, context, slot, &mark); /* if it can't be, an event over the context tells later */
        end_recording(device);
    }
    sg_lock(&device->lock);
    if (alive)
        sg_order_gone(device, slot);
    sg_unlock(&device->lock);
    sg_unlock(&device->asking);
}
