/* A mutex of one word for short critical sections: one locked instruction to take it, a plain store to give it back.

   Giving back does not look for waiters, which would cost a second locked instruction on every operation; a waiter that
   has spun for longer than a section lasts sleeps for a bounded time and looks again. So the lock also serves where it
   is held for long and rarely contended, at the price of waking up late by at most that time. Plain memory: a forked
   child may simply initialise it anew.

   Builds with assertions define SG_LOCK_CHECKS. There a lock has an owner and a rank, and a thread has a list of the
   locks that it holds. Three things abort the process, with a line that names the lock:

      - a lock is taken after one of a higher rank;
      - a lock is lacking where SG_ASSERT_HELD() stands;
      - a lock is given back by a thread that does not hold it. */
#ifndef SG_LOCK_H
#define SG_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Locks of a rank are taken before those of higher ranks. */
enum sg_lock_rank {
    SG_RANK_NONE, /* not checked: locks of tests, and those that are all zero */
#define CORE_LOCK(name, guards) SG_RANK_##name,
#define PROCESS_LOCK(name, guards) SG_RANK_##name,
#include "locks.def"
#undef CORE_LOCK
#undef PROCESS_LOCK
    SG_RANK_COUNT
};

struct sg_lock {
    _Atomic uint32_t word; /* 0 free, 1 held */
#ifdef SG_LOCK_CHECKS
    uint16_t rank;               /* enum sg_lock_rank */
    uint16_t turn;               /* of several locks of one rank the one with the lower turn is taken first */
    _Atomic(const void *) owner; /* what differs for each thread; NULL: free */
#endif
};

/* Of one that needs no sg_lock_init(): a static one that is the only lock of its rank. */
#ifdef SG_LOCK_CHECKS
#define SG_LOCK_INIT(of_rank) \
    {                         \
        .rank = of_rank       \
    }
#else
#define SG_LOCK_INIT(of_rank) \
    {                         \
        0                     \
    }
#endif

void sg_lock_wait(struct sg_lock *lock); /* the slow half of sg_lock() */

#ifdef SG_LOCK_CHECKS
void sg_lock_check_order(const struct sg_lock *lock);
void sg_lock_taken(struct sg_lock *lock);
void sg_lock_given_back(struct sg_lock *lock);
void sg_lock_forget(struct sg_lock *lock);
void sg_lock_assert_held(const struct sg_lock *lock, const char *what, const char *where);
void sg_lock_assert_none_from(enum sg_lock_rank rank, const char *where);
#define SG_LOCK_TEXT(line) #line
#define SG_LOCK_LINE(line) SG_LOCK_TEXT(line)
#define SG_LOCK_WHERE __FILE__ ":" SG_LOCK_LINE(__LINE__)
#define SG_ASSERT_HELD(lock) sg_lock_assert_held(lock, #lock, SG_LOCK_WHERE)
#define SG_ASSERT_NONE_HELD_FROM(rank) sg_lock_assert_none_from(rank, SG_LOCK_WHERE)
#else
static inline void sg_lock_check_order(const struct sg_lock *lock)
{
    (void)lock;
}
static inline void sg_lock_taken(struct sg_lock *lock)
{
    (void)lock;
}
static inline void sg_lock_given_back(struct sg_lock *lock)
{
    (void)lock;
}
static inline void sg_lock_forget(struct sg_lock *lock)
{
    (void)lock;
}
/* The calling thread holds the lock. */
#define SG_ASSERT_HELD(lock) ((void)0)
/* The calling thread holds no lock of this rank or a higher one: what follows may wait. */
#define SG_ASSERT_NONE_HELD_FROM(rank) ((void)0)
#endif

/* Makes a lock that nobody holds. `turn`: its place among locks of the rank. */
static inline void sg_lock_init(struct sg_lock *lock, enum sg_lock_rank rank, unsigned turn)
{
    sg_lock_forget(lock);
    atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
#ifdef SG_LOCK_CHECKS
    lock->rank = (uint16_t)rank;
    lock->turn = (uint16_t)turn;
#else
    (void)rank;
    (void)turn;
#endif
}

static inline void sg_lock(struct sg_lock *lock)
{
    uint32_t expected = 0;
    sg_lock_check_order(lock);
    if (!atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
        sg_lock_wait(lock);
    sg_lock_taken(lock);
}

/* Takes it if it is free; whether it was. Nobody waits for ever by that, so any order will do. */
static inline bool sg_lock_try(struct sg_lock *lock)
{
    uint32_t expected = 0;
    bool taken =
        atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed);
    if (taken)
        sg_lock_taken(lock);
    return taken;
}

/* Whether nobody holds it within a second. A holder that has left by a long jump keeps it for ever. */
bool sg_lock_comes_free(struct sg_lock *lock);

static inline void sg_unlock(struct sg_lock *lock)
{
    assert(atomic_load_explicit(&lock->word, memory_order_relaxed) == 1);
    sg_lock_given_back(lock);
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

#endif
