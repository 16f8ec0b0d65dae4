/* The rows of threads, and the scan of the thread that ends a context.

   Order of steps. A user publishes, then looks at the epoch. The ending thread raises the epoch, then looks at the
   rows. At least one of the two sees the other, given a fence between the two steps of each. membarrier makes the
   users' fence from the other side; without it, users take the long way with locked instructions. */
#include "track/context_pins.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/rest.h"

enum { RECORDS = 64 };

static struct {
    atomic_uint threads;                     /* that have a record */
    atomic_bool has_membarrier;              /* who looks at the records makes all threads' stores visible first */
    struct sg_hazard_record record[RECORDS]; /* untouched until there are so many threads */
} pins;

void sg_context_pins_rest(void)
{
    sg_rest(20000);
}

/* The 64th thread and all later ones share the last row. */
static struct sg_hazard_record *own_record(struct sg_thread *self)
{
    if (!self->hazard) {
        unsigned record = atomic_fetch_add_explicit(&pins.threads, 1, memory_order_relaxed);
        self->hazard = &pins.record[record < RECORDS ? record : RECORDS - 1];
    }
    return self->hazard;
}

/* Counts, then looks whether the context is still there and not ending; else takes it back and looks again. With
   membarrier the context is remembered for the short way. */
int sg_context_pin(CUcontext context)
{
    struct sg_thread *self = sg_this_thread();
    struct sg_hazard_record *record = own_record(self);
    for (;; sg_context_pins_rest()) {
        unsigned changes = atomic_load(&sg_context_pins_epoch);
        int index = sg_context_index(context);
        if (index < 0)
            return -1;
        atomic_fetch_add(&record->pins[index], 1);
        if (atomic_load(&sg_context_table.entry[index].ending) == 0 &&
            atomic_load(&sg_context_table.entry[index].context) == context) {
            if (atomic_load(&pins.has_membarrier) && record != &pins.record[RECORDS - 1])
                *sg_context_pin_entry(self, context) = (struct sg_pin_entry){context, changes};
            return (int)(record - pins.record) * SG_CONTEXTS_KNOWN + index;
        }
        atomic_fetch_sub(&record->pins[index], 1);
    }
}

void sg_context_unpin(int use)
{
    atomic_fetch_sub(&pins.record[use / SG_CONTEXTS_KNOWN].pins[use % SG_CONTEXTS_KNOWN], 1);
}

/* Pinned first: a context that is current can still be destroyed by another thread. */
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

/* linux/membarrier.h, which is newer than some that this is built with. */
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static bool barrier_in_all_threads(int command)
{
    int before = errno;
    bool done = syscall(SYS_membarrier, command, 0) == 0;
    errno = before;
    return done;
}

/* One fence in all threads, then both ways of each row. */
bool sg_context_is_pinned(CUcontext context)
{
    int index = sg_context_index(context);
    bool any = false;
    if (atomic_load(&pins.has_membarrier))
        (void)barrier_in_all_threads(PRIVATE_EXPEDITED); /* does not fail once it is registered */
    for (int record = 0; index >= 0 && record < RECORDS; record++)
        any |= atomic_load(&pins.record[record].pins[index]) != 0 || atomic_load(&pins.record[record].pinned) == context;
    return any;
}

void sg_context_pins_use_membarrier(void)
{
    if (!atomic_load(&pins.has_membarrier) && barrier_in_all_threads(REGISTER_PRIVATE_EXPEDITED))
        atomic_store(&pins.has_membarrier, true);
}
