/* For example, blocks 12 and 13 are freed in a process with one context and a driver of CUDA 12.4. `begun` is 13. The helper
   thread is sent off, reads 13, and waits for the context. Block 14 is freed meanwhile. The helper returns and `waited` is 13:
   the pages of 12 and 13 go at the next allocation, and the helper is sent off once more for 14.

   With CUDA 12.5 each of the three has an event of its own. Block 13's passes: `over` is 13.

   An event is asked about only while its context is pinned, so whoever ends the context waits for that (track/context_pins.h).
   After that the events are dropped without a call. */
#include "check/guard_wait.h"

#include <stdatomic.h>

#include "check/faults.h"
#include "check/guard_state.h"
#include "check/state.h"
#include "driver/driver.h"
#include "process/locks.h"
#include "process/worker_thread.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/context_table.h"

static _Atomic uint64_t begun, over,
    waited; /* numbers of frees: the last one; all are over up to; a helper has waited up to */

/* The contexts that are alive but for green ones, which the primary one stands for; below 0: too many. */
static int contexts_alive(CUcontext ret[SG_GUARD_CONTEXTS])
{
    int count = 0;
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *info;
    for (int i = 0; (info = sg_context_alive_locked(i)) && count >= 0; i++) {
        if (info->green)
            continue;
        if (count == SG_GUARD_CONTEXTS)
            count = -1;
        else
            ret[count++] = info->context;
    }
    sg_process_unlock(SG_LOCK_CONTEXTS);
    return count;
}

/* An event over all work of a context so far. With captures excluded. NULL: the driver refused. *ret_gone: the context has
   ended, or is about to. */
static CUevent event_over(CUcontext context, bool *ret_gone)
{
    CUevent event = NULL;
    int use = sg_context_is_ending(context) ? -1 : sg_context_pin_current(context);
    *ret_gone = use < 0;
    if (use < 0)
        return NULL;
    if (sg_check_driver->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        event = NULL;
    } else if (sg_check_driver->ctx_record_event(context, event) != CUDA_SUCCESS) {
        (void)sg_check_driver->event_destroy(event);
        event = NULL;
    }
    sg_context_unpin_current(use);
    return event;
}

/* Takes event number `i` of a block; NULL: it has passed, or gone. */
static CUevent fence_of(struct sg_guard *guard, unsigned i, CUcontext *ret)
{
    sg_process_lock(SG_LOCK_GUARD);
    CUevent event = guard->fence[i].context ? guard->fence[i].event : NULL;
    *ret = guard->fence[i].context;
    sg_process_unlock(SG_LOCK_GUARD);
    return event;
}

/* Sets it; without a context it is none. */
static void fence_set(struct sg_guard *guard, unsigned i, CUcontext context, CUevent event)
{
    sg_process_lock(SG_LOCK_GUARD);
    guard->fence[i].context = context;
    guard->fence[i].event = event;
    sg_process_unlock(SG_LOCK_GUARD);
}

/* The driver's word on an event; success where the context has gone. One that has passed is destroyed. */
static CUresult fence_ask(struct sg_guard *guard, unsigned i)
{
    CUcontext context;
    CUevent event = fence_of(guard, i, &context);
    int use = event ? sg_context_pin(context) : -1;
    if (use < 0)
        return CUDA_SUCCESS;
    CUresult result = sg_check_driver->event_query(event);
    if (result == CUDA_SUCCESS) {
        fence_set(guard, i, NULL, NULL);
        (void)sg_check_driver->event_destroy(event);
    }
    sg_context_unpin(use);
    return result;
}

/* A context that ends meanwhile takes its event with it; the others are destroyed here.

   Takes back what was recorded where the rest could not be. */
static void fences_drop(struct sg_guard *guard)
{
    for (unsigned i = 0; i < SG_GUARD_CONTEXTS; i++) {
        CUcontext context;
        CUevent event = fence_of(guard, i, &context);
        int use = event ? sg_context_pin(context) : -1;
        if (use < 0)
            continue;
        fence_set(guard, i, NULL, NULL);
        (void)sg_check_driver->event_destroy(event);
        sg_context_unpin(use);
    }
}

/* Records an event over each context, or none at all: some of them show nothing. A context that is about to end, or has just
   begun to, is looked at again the next time. One that comes later has no work on the block. */
static void fences_record(struct sg_guard *guard)
{
    CUcontext context[SG_GUARD_CONTEXTS];
    int count = contexts_alive(context);
    bool well = count >= 0, gone;
    if (!sg_check_driver->ctx_record_event || count < 0)
        return;
    sg_captures_exclude();
    well = !sg_captures_active();
    for (int i = 0; i < count && well; i++) {
        CUevent event = event_over(context[i], &gone);
        if (event)
            fence_set(guard, (unsigned)i, context[i], event);
        well = event || (gone && !sg_context_is_ending(context[i]));
    }
    sg_captures_allow();
    guard->fenced = well;
    if (!well)
        fences_drop(guard);
}

/* The helper's errand. The number is read before the contexts, so a block that is freed during the wait is not counted. A context that can't be pinned has ended, and its work with it. */
static CUresult guard_wait_for_contexts(void *user)
{
    CUcontext context[SG_CONTEXTS_KNOWN];
    int count = 0;
    uint64_t number = atomic_load(&begun);
    (void)user;
    sg_process_lock(SG_LOCK_CONTEXTS);
    const struct sg_context_info *info;
    for (int i = 0; (info = sg_context_alive_locked(i)); i++)
        if (!info->green)
            context[count++] = info->context;
    sg_process_unlock(SG_LOCK_CONTEXTS);
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < count && result == CUDA_SUCCESS; i++) {
        int use = sg_context_pin_current(context[i]);
        if (use < 0)
            continue;
        result = sg_captures_wait_aside();
        sg_context_unpin_current(use);
    }
    if (result == CUDA_SUCCESS)
        atomic_store(&waited, number);
    return result;
}

void sg_guard_wait_begins(struct sg_guard *guard, bool is_over)
{
    uint64_t before = atomic_load(&begun);
    while (before < guard->number && !atomic_compare_exchange_weak(&begun, &before, guard->number)) {
    }
    guard->fenced = is_over;
    if (!is_over && !sg_captures_active())
        fences_record(guard);
}

bool sg_guard_wait_ended(struct sg_guard *guard)
{
    if (!guard->fenced && atomic_load(&waited) < guard->number) {
        fences_record(guard);
        if (!guard->fenced && !sg_worker_has_begun())
            (void)sg_worker_begin(guard_wait_for_contexts, NULL);
        if (!guard->fenced)
            return false;
    }
    for (unsigned i = 0; i < SG_GUARD_CONTEXTS && guard->fenced; i++) {
        CUresult result = fence_ask(guard, i);
        sg_fault_seen(result, "cuEventQuery");
        if (sg_driver_is_sticky(result))
            sg_guard_close();
        if (result != CUDA_SUCCESS)
            return false;
    }
    uint64_t before = atomic_load(&over);
    while (before < guard->number && !atomic_compare_exchange_weak(&over, &before, guard->number)) {
    }
    return true;
}

bool sg_guard_wait_is_over(uint64_t number)
{
    return atomic_load(&over) >= number;
}

/* The driver has destroyed them with their context. */
static void drop_events_of(struct sg_guard *guard, void *context)
{
    for (unsigned i = 0; i < SG_GUARD_CONTEXTS; i++)
        if (guard->fence[i].context == (CUcontext)context)
            guard->fence[i].context = NULL;
}

void sg_guard_wait_without(CUcontext context)
{
    sg_guards_each(drop_events_of, context);
}
