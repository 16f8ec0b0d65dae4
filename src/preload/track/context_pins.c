#include "track/context_pins.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rest.h"


enum { ROWS = 64 };

static struct {
    _Atomic(CUcontext) context[SG_CONTEXTS_KNOWN]; /* NULL: nobody's place (any more). A context keeps its place while
                                                      it lives */
    atomic_int ending[SG_CONTEXTS_KNOWN];          /* calls under way that may end it */
    atomic_int places;                             /* that are, or were, somebody's */
    atomic_uint threads;                           /* that have a row */
    atomic_bool far;                               /* who looks at the rows makes all threads' stores visible first */
    struct sg_row row[ROWS];                       /* untouched until there are so many threads */
} table;

atomic_uint sg_users_changes;

static int place_of(CUcontext context)
{
    int places = atomic_load_explicit(&table.places, memory_order_acquire);
    for (int place = 0; place < places; place++) {
        if (atomic_load_explicit(&table.context[place], memory_order_relaxed) == context)
            return place;
    }
    return -1;
}

void sg_users_rest(void)
{
    sg_rest(20000);
}

static struct sg_row *own_row(struct sg_thread *self)
{
    if (!self->row) {
        unsigned row = atomic_fetch_add_explicit(&table.threads, 1, memory_order_relaxed);
        self->row = &table.row[row < ROWS ? row : ROWS - 1];
    }
    return self->row;
}

int sg_users_begin(CUcontext context)
{
    struct sg_thread *self = sg_this_thread();
    struct sg_row *row = own_row(self);
    for (;; sg_users_rest()) {
        unsigned changes = atomic_load(&sg_users_changes);
        int place = context ? place_of(context) : -1;
        if (place < 0)
            return -1;
        atomic_fetch_add(&row->calls[place], 1);
        if (atomic_load(&table.ending[place]) == 0 && atomic_load(&table.context[place]) == context) {
            if (atomic_load(&table.far) && row != &table.row[ROWS - 1])
                *sg_users_met(self, context) = (struct sg_met){context, changes};
            return (int)(row - table.row) * SG_CONTEXTS_KNOWN + place;
        }
        atomic_fetch_sub(&row->calls[place], 1);
    }
}

void sg_users_end(int use)
{
    atomic_fetch_sub(&table.row[use / SG_CONTEXTS_KNOWN].calls[use % SG_CONTEXTS_KNOWN], 1);
}

int sg_users_enter(CUcontext context)
{
    int use = sg_users_begin(context);
    if (use >= 0 && sg_life_driver()->ctx_push(context) != CUDA_SUCCESS) {
        sg_users_end(use);
        return -1;
    }
    return use;
}

void sg_users_leave(int use)
{
    CUcontext popped;
    (void)sg_life_driver()->ctx_pop(&popped);
    sg_users_end(use);
}

void sg_users_seen(CUcontext context)
{
    int places = atomic_load_explicit(&table.places, memory_order_relaxed), place = place_of(NULL);
    if (place < 0 && places == SG_CONTEXTS_KNOWN)
        return;
    if (place < 0)
        place = places;
    atomic_store(&table.context[place], context);
    if (place == places)
        atomic_store_explicit(&table.places, places + 1, memory_order_release);
}

void sg_users_gone(CUcontext context)
{
    int place = place_of(context);
    if (place < 0)
        return;
    atomic_fetch_add(&sg_users_changes, 1);
    atomic_store(&table.context[place], NULL);
    atomic_store(&table.ending[place], 0);
}

void sg_users_ending(CUcontext context, int more)
{
    int place = place_of(context);
    /* another call may have ended it since, and it have come back */
    if (place < 0 || (more < 0 && atomic_load(&table.ending[place]) == 0))
        return;
    atomic_fetch_add(&table.ending[place], more);
    atomic_fetch_add(&sg_users_changes, 1);
}

bool sg_users_is_ending(CUcontext context)
{
    int place = place_of(context);
    return place >= 0 && atomic_load(&table.ending[place]) > 0 && atomic_load(&table.context[place]) == context;
}

/* linux/membarrier.h, which is newer than some that this is built with. */
enum { PRIVATE_EXPEDITED = 1 << 3, REGISTER_PRIVATE_EXPEDITED = 1 << 4 };

static bool fence_everywhere(int command)
{
    int before = errno;
    bool done = syscall(SYS_membarrier, command, 0) == 0;
    errno = before;
    return done;
}

bool sg_users_any(CUcontext context)
{
    int place = place_of(context);
    bool any = false;
    if (atomic_load(&table.far))
        (void)fence_everywhere(PRIVATE_EXPEDITED); /* does not fail once it is registered */
    for (int row = 0; place >= 0 && row < ROWS; row++)
        any |= atomic_load(&table.row[row].calls[place]) != 0 || atomic_load(&table.row[row].named) == context;
    return any;
}

void sg_users_expect(void)
{
    if (!atomic_load(&table.far) && fence_everywhere(REGISTER_PRIVATE_EXPEDITED))
        atomic_store(&table.far, true);
}
