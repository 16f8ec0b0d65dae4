/* A hash table with open addressing over a list of entries. A destroyed event's entry goes to a list of free ones.
   Those behind it in its chain move up, so look-ups need no marks of deleted ones.

   For example, 4,097 events are recorded. The last one finds no entry, `full` is set, and from then on an event
   without an entry is UNKNOWN. Before that it would have been BLANK: never recorded, so nothing comes before it. */
#include "track/events.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "process/process.h"
#include "track/streams.h"
#include "base/wrap.h"

enum { EVENTS_MAX = 4096, BUCKETS = 2 * EVENTS_MAX };

/* Events that were recorded since order is followed. A full table only loses precision. But if an untrusted event
   could not be stored, every event missing from the table is untrusted. Guarded by SG_LOCK_EVENTS. */
static struct {
    struct event {
        CUevent handle;
        CUcontext context;  /* of its stream, NULL if not known */
        enum sg_event_state state;
        bool untracked_order; /* SG_EVENT_KNOWN, and what comes before it may be more than `clock` */
        bool mixed;         /* records overlapped: nobody knows which was the last */
        uint32_t generation, under_way;
        int device;
        struct sg_vector_clock clock;
    } list[EVENTS_MAX];
    uint16_t bucket[BUCKETS]; /* index + 1 */
    uint16_t next_free[EVENTS_MAX]; /* of entries that were used and given back; index + 1 */
    int used, first_free;
    bool full; /* an event could not be kept */
    atomic_bool early; /* one was tainted before order was followed */
    atomic_bool missed; /* a tainted one could not be kept */
} events;

static size_t event_home(CUevent handle)
{
    return (size_t)(sg_hash((uintptr_t)handle) >> 40) % BUCKETS;
}

/* The bucket of an event, or the empty one where its chain ends. */
static size_t event_bucket_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    size_t at = event_home(handle);
    while (events.bucket[at] && events.list[events.bucket[at] - 1].handle != handle)
        at = (at + 1) % BUCKETS;
    return at;
}

static struct event *event_find_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    uint16_t index = events.bucket[event_bucket_locked(handle)];
    return index ? &events.list[index - 1] : NULL;
}

/* The event's entry, made where there is none. A new entry is untrusted if an untrusted event could not be kept, for it
   may be that one. NULL: the table is full. */
static struct event *event_find_or_make_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    size_t at = event_bucket_locked(handle);
    if (events.bucket[at])
        return &events.list[events.bucket[at] - 1];
    int index = events.first_free;
    if (index)
        events.first_free = events.next_free[index - 1];
    else if (events.used < EVENTS_MAX)
        index = ++events.used;
    if (!index) {
        events.full = true;
        return NULL;
    }
    events.bucket[at] = (uint16_t)index;
    struct event *event = &events.list[index - 1];
    uint32_t generation = event->generation + 1;
    enum sg_event_state state = atomic_load_explicit(&events.missed, memory_order_relaxed) ? SG_EVENT_UNTRUSTED
                                                                                           : SG_EVENT_BLANK;
    *event = (struct event){.handle = handle, .state = state, .generation = generation};
    return event;
}

/* Takes the entry out and closes its chain. For example, buckets 5, 6 and 7 hold A, B and C, all of home 5. A goes: B
   moves to 5 and C to 6. Had C been of home 7 it would have stayed. */
static void event_drop_locked(CUevent handle)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_EVENTS);
    size_t hole = event_bucket_locked(handle), at = hole;
    int index = events.bucket[hole];
    if (!index)
        return;
    events.list[index - 1].generation++;
    events.list[index - 1].handle = NULL;
    events.next_free[index - 1] = (uint16_t)events.first_free;
    events.first_free = index;
    /* Each entry after it in its chain moves up, unless it would lie before its own home then. */
    for (at = (at + 1) % BUCKETS; events.bucket[at]; at = (at + 1) % BUCKETS) {
        size_t from = event_home(events.list[events.bucket[at] - 1].handle);
        if (sg_steps_round(from, at, BUCKETS) >= sg_steps_round(hole, at, BUCKETS)) {
            events.bucket[hole] = events.bucket[at];
            hole = at;
        }
    }
    events.bucket[hole] = 0;
}

/* Also before order is followed: who records it by then may do so again at any time. */
void sg_events_distrust(CUevent handle)
{
    if (!handle)
        return;
    if (!sg_following())
        atomic_store(&events.early, true);
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event) {
        event->generation++;
        event->state = SG_EVENT_UNTRUSTED;
    } else {
        atomic_store(&events.missed, true);
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* Cheap for programs whose order nobody follows: one flag. */
void sg_events_forget(CUevent handle)
{
    if (!handle || (!sg_following() && !atomic_load_explicit(&events.early, memory_order_relaxed)))
        return;
    sg_process_lock(SG_LOCK_EVENTS);
    event_drop_locked(handle);
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* A new one. */
void sg_events_enter(CUevent handle)
{
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event)
        event->state = SG_EVENT_BLANK;
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* Recorded where no stream's clock says what comes before it. */
void sg_events_unknow(CUevent handle)
{
    if (!sg_following() || !handle)
        return;
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event) {
        event->generation++;
        event->state = event->state == SG_EVENT_UNTRUSTED ? SG_EVENT_UNTRUSTED : SG_EVENT_UNKNOWN;
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* Events outlive a context that another thread ends; their handles mean nothing after it. */
void sg_events_context_gone(CUcontext context)
{
    sg_process_lock(SG_LOCK_EVENTS);
    for (int i = 0; i < events.used; i++) {
        if (events.list[i].handle && events.list[i].context == context)
            event_drop_locked(events.list[i].handle);
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

bool sg_events_begin_record(CUevent handle)
{
    bool shared;
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_or_make_locked(handle);
    if (event) {
        event->generation++;
        event->under_way++;
        event->mixed |= event->under_way > 1;
        shared = event->state == SG_EVENT_UNTRUSTED;
        event->state = event->state == SG_EVENT_UNTRUSTED ? SG_EVENT_UNTRUSTED : SG_EVENT_UNKNOWN;
    } else {
        shared = atomic_load_explicit(&events.missed, memory_order_relaxed);
    }
    sg_process_unlock(SG_LOCK_EVENTS);
    return shared;
}

bool sg_events_any_missed(void)
{
    return atomic_load_explicit(&events.missed, memory_order_relaxed);
}

/* Only the last of records that overlap may make the event known again, and it does not: nobody knows which record the
   driver made last. */
void sg_events_end_record(CUevent handle, bool captured, const struct sg_event_recording *recording)
{
    sg_process_lock(SG_LOCK_EVENTS);
    struct event *event = event_find_locked(handle);
    if (event) {
        bool mixed = event->mixed;
        if (event->under_way && --event->under_way == 0)
            event->mixed = false;
        if (event->state == SG_EVENT_UNTRUSTED) {
            /* stays so */
        } else if (captured) {
            event->state = SG_EVENT_CAPTURED;
        } else if (recording->early) {
            event->state = SG_EVENT_BLANK;
        } else if (mixed || !recording->followed) {
            event->state = SG_EVENT_UNKNOWN;
        } else {
            event->state = SG_EVENT_KNOWN;
            event->untracked_order = recording->untracked_order;
            event->device = recording->tracked.device;
            event->context = recording->context;
            event->clock = recording->clock;
        }
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* An event without an entry was never recorded, unless the table was full once or order is followed only since late. */
void sg_events_know(CUevent handle, struct sg_event_knowledge *ret)
{
    sg_process_lock(SG_LOCK_EVENTS);
    const struct event *event = event_find_locked(handle);
    if (event) {
        ret->state = event->state;
        ret->untracked_order = event->untracked_order;
        ret->device = event->device;
        ret->generation = event->generation;
        if (event->state == SG_EVENT_KNOWN)
            ret->clock = event->clock;
    } else {
        ret->state = events.full || sg_follow_late() ? SG_EVENT_UNKNOWN : SG_EVENT_BLANK;
        ret->generation = 0;
    }
    sg_process_unlock(SG_LOCK_EVENTS);
}

/* It was neither recorded anew nor destroyed since. */
bool sg_events_is_still(CUevent handle, const struct sg_event_knowledge *knowledge)
{
    sg_process_lock(SG_LOCK_EVENTS);
    const struct event *event = event_find_locked(handle);
    bool same = event ? event->generation == knowledge->generation : knowledge->generation == 0;
    sg_process_unlock(SG_LOCK_EVENTS);
    return same;
}
