/* The array of locks, by rank of base/locks.def. A bit of `guards` is set before its lock is taken and cleared after it
   is given back. So a signal handler never finds a lock taken whose bit is not set. The fences keep the compiler from
   moving the one past the other. */
#include "process/locks.h"

#include <stdatomic.h>

#include "process/thread.h"

static struct sg_lock locks[SG_LOCK_COUNT] = {
#define CORE_LOCK(name, guards)
#define PROCESS_LOCK(name, guards) [SG_LOCK_##name] = SG_LOCK_INIT(SG_RANK_##name),
#include "base/locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
};

/* A handler that comes between two of these steps finds the bit set. */
static void guard_begin(enum sg_process_lock guard)
{
    sg_self.guards |= 1u << guard;
    atomic_signal_fence(memory_order_seq_cst);
}

static void guard_end(enum sg_process_lock guard)
{
    atomic_signal_fence(memory_order_seq_cst);
    sg_self.guards &= ~(1u << guard);
}

void sg_process_lock(enum sg_process_lock guard)
{
    guard_begin(guard);
    sg_lock(&locks[guard]);
}

/* Fails where this thread holds the lock itself, or a call that a handler has interrupted does: then the bit was set
   before and stays. */
bool sg_process_lock_try(enum sg_process_lock guard)
{
    unsigned before = sg_self.guards;
    guard_begin(guard);
    bool taken = sg_lock_try(&locks[guard]);
    if (!taken && !(before >> guard & 1)) /* else a handler asks within it */
        guard_end(guard);
    return taken;
}

void sg_process_unlock(enum sg_process_lock guard)
{
    sg_unlock(&locks[guard]);
    guard_end(guard);
}

bool sg_process_locks_come_free(void)
{
    bool all = true;
    for (int i = 0; i < SG_LOCK_COUNT && all; i++)
        all = sg_lock_comes_free(&locks[i]);
    return all;
}

void sg_process_assert_locked(enum sg_process_lock guard)
{
    (void)guard;
    SG_ASSERT_HELD(&locks[guard]);
}

/* In the child only this thread exists. Its own locks are free now, but for those that the handler around fork() has
   interrupted. */
void sg_process_locks_reset(void)
{
    for (int i = 0; i < SG_LOCK_COUNT; i++) {
        if (!sg_self.fork.guarded && sg_self.guards >> i & 1)
            continue; /* what the handler has interrupted gives it back */
        sg_lock_init(&locks[i], (enum sg_lock_rank)(SG_RANK_PROCESS + i), 0);
        guard_end((enum sg_process_lock)i);
    }
}
