/* The locks of this layer, one for each table (base/locks.def has names, order and what each guards).

   Why they are wrapped. A signal handler may interrupt a thread that holds one and then allocate or free. It would wait
   for its own thread for ever. So a thread has a bit for each lock that it holds (`guards` of thread.h). A call of a
   handler finds the bit set and is handed on to the driver.

   How. lock() sets the bit before it takes the lock, and unlock() clears it after. A handler between the two sees the
   bit, though the lock may be free. fork() takes all of them in order, so that a child finds no table half changed.

   For example, a thread is in sg_outside_taken() with SG_LOCK_OUTSIDE as SIGALRM comes. The handler calls cudaFree:
   sg_enter() finds `guards` not 0 and answers NULL. The driver frees a block of its own; the book misses that one
   entry. */
#ifndef SG_LOCKS_H
#define SG_LOCKS_H

#include <stdbool.h>

#include "base/lock.h"

/* Locks of this layer. None is held across a call that can take the loader's lock, call the driver or wait. fork()
   takes them all, so that the child finds them free, unless a handler forks within one. sg_process_lock() takes one. */
enum sg_process_lock {
#define CORE_LOCK(name, guards)
#define PROCESS_LOCK(name, guards) SG_LOCK_##name,
#include "base/locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
    SG_LOCK_COUNT
};
_Static_assert((int)SG_RANK_COUNT - (int)SG_RANK_PROCESS == (int)SG_LOCK_COUNT, "they are the last of locks.def");
void sg_process_lock(enum sg_process_lock guard);
bool sg_process_lock_try(enum sg_process_lock guard); /* false: another thread, or what a signal has interrupted, holds
                                                         it */
void sg_process_unlock(enum sg_process_lock guard);
void sg_process_assert_locked(enum sg_process_lock guard);

/* True if each is free, or comes free within a second. A holder that has left by a long jump keeps it for ever. To be asked
   by a thread that holds none. */
bool sg_process_locks_come_free(void);

/* The calling thread holds the lock, in builds that check it (lock.h). */
#ifdef SG_LOCK_CHECKS
#define SG_ASSERT_PROCESS_LOCK(guard) sg_process_assert_locked(guard)
#else
#define SG_ASSERT_PROCESS_LOCK(guard) ((void)0)
#endif

/* In a child of fork(): frees all locks, but for those whose holder the handler around fork() has interrupted. */
void sg_process_locks_reset(void);

#endif
