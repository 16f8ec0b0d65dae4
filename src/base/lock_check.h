/* Checks of locks, in builds with assertions: ranks, owners, and the list of locks that a thread holds. lock.h calls these,
   and says what they find.

   A *rank* is the place of a lock in the one order in which all threads take them (locks.def). The checks are functions
   where SG_LOCK_CHECKS is defined, and nothing at all otherwise.

   Example, a function that needs a device's `lock`:
       SG_ASSERT_HELD(&device->lock);
   Called without it, a build with assertions ends the process with
       segalloc: lock check: FILE:LINE: &device->lock is not held by this thread
   and a release build has no code for the line. */
#ifndef SG_LOCK_CHECK_H
#define SG_LOCK_CHECK_H

/* The place of a lock in the one order in which all threads take them: locks of a rank come before those of higher ranks.
   Two threads that keep to one order cannot wait for each other. */
enum sg_lock_rank {
    SG_RANK_NONE, /* not checked: locks of tests, and those that are all zero */
#define CORE_LOCK(name, guards) SG_RANK_##name,
#define PROCESS_LOCK(name, guards) SG_RANK_##name,
#include "locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
    SG_RANK_COUNT
};

struct sg_lock;

#ifdef SG_LOCK_CHECKS
/* Before a lock is taken: the thread may take it, by the ranks of those that it holds. */
void sg_lock_check_order(const struct sg_lock *lock);

/* After it was taken, before it is given back, and when it is made anew. */
void sg_lock_taken(struct sg_lock *lock);
void sg_lock_given_back(struct sg_lock *lock);
void sg_lock_forget(struct sg_lock *lock);

/* The thread holds the lock; it holds none from a rank on. `where` is the file and line of the assertion. */
void sg_lock_assert_held(const struct sg_lock *lock, const char *what, const char *where);
void sg_lock_assert_none_from(enum sg_lock_rank rank, const char *where);
#define SG_LOCK_TEXT(line) #line
#define SG_LOCK_LINE(line) SG_LOCK_TEXT(line)
#define SG_LOCK_WHERE __FILE__ ":" SG_LOCK_LINE(__LINE__)
#define SG_ASSERT_HELD(lock) sg_lock_assert_held(lock, #lock, SG_LOCK_WHERE)
#define SG_ASSERT_NONE_HELD_FROM(rank) sg_lock_assert_none_from(rank, SG_LOCK_WHERE)
#else
#define sg_lock_check_order(lock) ((void)(lock))
#define sg_lock_taken(lock) ((void)(lock))
#define sg_lock_given_back(lock) ((void)(lock))
#define sg_lock_forget(lock) ((void)(lock))
/* The calling thread holds the lock. */
#define SG_ASSERT_HELD(lock) ((void)0)
/* The calling thread holds no lock of this rank or a higher one: what follows may wait. */
#define SG_ASSERT_NONE_HELD_FROM(rank) ((void)0)
#endif

#endif
