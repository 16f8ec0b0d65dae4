#include "track/context_pins.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rest.h"


enum { RECORDS = 64 };

static struct {
    /* Changed under SG_LOCK_CONTEXTS, as the next two. */
    _Atomic(CUcontext) context[SG_CONTEXTS_KNOWN]; /* NULL: nobody's place (any more). A context keeps its place while
                                                      it lives */
    atomic_int ending[SG_CONTEXTS_KNOWN];          /* calls under way that may end it */
    atomic_int indexes;                            /* that are, or were, somebody's */
    atomic_uint threads;                           /* that have a row */
    atomic_bool has_membarrier;                    /* who looks at the rows makes all threads' stores visible first */
    struct sg_hazard_record record[RECORDS];       /* untouched until there are so many threads */
} table;

atomic_uint sg_context_pins_epoch;

static int context_index(CUcontext context)
{
    int indexes = atomic_load_explicit(&table.indexes, memory_order_acquire);
    for (int index = 0; index < indexes; index++) {
        if (atomic_load_explicit(&table.context[index], memory_order_relaxed) == context)
            return index;
    }
    return -1;
}

void sg_context_pins_rest(void)
{
    sg_rest(20000);
}

static struct sg_hazard_record *own_record(struct sg_thread *self)
{
    if (!self->hazard) {
        unsigned record = atomic_fetch_add_explicit(&table.threads, 1, memory_order_relaxed);
        self->hazard = &table.record[record < RECORDS ? record : RECORDS - 1];
    }
    return self->hazard;
}

int sg_context_pin(CUcontext context)
{
    struct sg_thread *self = sg_this_thread();
    struct sg_hazard_record *record = own_record(self);
    for (;; sg_context_pins_rest()) {
        unsigned changes = atomic_load(&sg_context_pins_epoch);
        int index = context ? context_index(context) : -1;
        if (index < 0)
            return -1;
        atomic_fetch_add(&record->pins[index], 1);
        if (atomic_load(&table.ending[index]) == 0 && atomic_load(&table.context[index]) == context) {
            if (atomic_load(&table.has_membarrier) && record != &table.record[RECORDS - 1])
                *sg_context_pin_entry(self, context) = (struct sg_pin_entry){context, changes};
            return (int)(record - table.record) * SG_CONTEXTS_KNOWN + index;
        }
        atomic_fetch_sub(&record->pins[index], 1);
    }
}

void sg_context_unpin(int use)
{
    atomic_fetch_sub(&table.record[use / SG_CONTEXTS_KNOWN].pins[use % SG_CONTEXTS_KNOWN], 1);
}

int sg_context_pin_current(CUcontext context)
{
    int use = sg_context_pin(context);
    if (use >= 0 && sg_process_driver()->ctx_push(context) != CUDA_SUCCESS) {
        sg_context_unpin(use);
        return -1;
    }
    return use;
}

void sg_context_unpin_current(int use)
{
    CUcontext popped;
    (void)sg_process_driver()->ctx_pop(&popped);
    sg_context_unpin(use);
}

void sg_context_pins_add_locked(CUcontext context)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int indexes = atomic_load_explicit(&table.indexes, memory_order_relaxed), index = context_index(NULL);
    if (index < 0 && indexes == SG_CONTEXTS_KNOWN)
        return;
    if (index < 0)
        index = indexes;
    atomic_store(&table.context[index], context);
    if (index == indexes)
        atomic_store_explicit(&table.indexes, indexes + 1, memory_order_release);
}

void sg_context_pins_remove_locked(CUcontext context)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int index = context_index(context);
    if (index < 0)
        return;
    atomic_fetch_add(&sg_context_pins_epoch, 1);
    atomic_store(&table.context[index], NULL);
    atomic_store(&table.ending[index], 0);
}

void sg_context_pins_ending_locked(CUcontext context, int more)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_CONTEXTS);
    int index = context_index(context);
    /* another call may have ended it since, and it have come back */
    if (index < 0 || (more < 0 && atomic_load(&table.ending[index]) == 0))
        return;
    atomic_fetch_add(&table.ending[index], more);
    atomic_fetch_add(&sg_context_pins_epoch, 1);
}

bool sg_context_is_ending(CUcontext context)
{
    int index = context_index(context);
    return index >= 0 && atomic_load(&table.ending[index]) > 0 && atomic_load(&table.context[index]) == context;
}

/* linux/membarrier.h, which is newer than some that this is built with. */
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static bool barrier_in_all_threads(int command)
{
    int before = errno;
    bool done = syscall(SYS_membarrier, command, 0) == 0;
    errno = before;
    return done;
}

bool sg_context_is_pinned(CUcontext context)
{
    int index = context_index(context);
    bool any = false;
    if (atomic_load(&table.has_membarrier))
        (void)barrier_in_all_threads(PRIVATE_EXPEDITED); /* does not fail once it is registered */
    for (int record = 0; index >= 0 && record < RECORDS; record++)
        any |= atomic_load(&table.record[record].pins[index]) != 0 ||
            atomic_load(&table.record[record].pinned) == context;
    return any;
}

void sg_context_pins_use_membarrier(void)
{
    if (!atomic_load(&table.has_membarrier) && barrier_in_all_threads(REGISTER_PRIVATE_EXPEDITED))
        atomic_store(&table.has_membarrier, true);
}
