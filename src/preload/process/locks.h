/* The locks of this layer. */
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

/* The calling thread holds the lock, in builds that check it (lock.h). */
#ifdef SG_LOCK_CHECKS
#define SG_ASSERT_PROCESS_LOCK(guard) sg_process_assert_locked(guard)
#else
#define SG_ASSERT_PROCESS_LOCK(guard) ((void)0)
#endif

/* In a child of fork(): frees all locks, but for those whose holder the handler around fork() has interrupted. */
void sg_process_locks_reset(void);

#endif
