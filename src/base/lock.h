/* A mutex of one word for short critical sections: one locked instruction to take it, a plain store to give it back.

   Why not pthread_mutex: it looks for waiters as it is given back. That is a second locked instruction in every malloc
   and free of the program. Here nobody looks. A waiter that has spun for longer than a section lasts sleeps for a
   bounded time, and looks again. So the lock also serves where it is held for long and rarely contended; then a waiter
   wakes up late by at most that time. It is plain memory, so a forked child may initialise it anew.

   Example. Thread A holds a device's lock for 30 ns, and B comes 10 ns later.
     B finds the word 1 and pauses 256 times, some 3 us; A has long gone on; B takes the lock.
   Now A is descheduled while it holds the lock.
     B pauses 256 times and seven times 512, some 46 us in all; from there on it sleeps 50 us between two looks.

   Builds with assertions define SG_LOCK_CHECKS. There a lock has an owner and a rank, and a thread has a list of the
   locks that it holds. Three things abort the process, with a line that names the lock:

      - a lock is taken after one of a higher rank;
      - a lock is lacking where SG_ASSERT_HELD() stands;
      - a lock is given back by a thread that does not hold it.

   A thread that holds the lock of device 0 and then takes `grow` of that device ends with
      segalloc: lock check: wrong order: taking GROW (0) after DEVICE */
#ifndef SG_LOCK_H
#define SG_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lock_check.h"

struct sg_lock {
    _Atomic uint32_t word; /* 0: free, 1: held */
#ifdef SG_LOCK_CHECKS
    uint16_t rank;               /* enum sg_lock_rank */
    uint16_t turn;               /* of several locks of one rank the one with the lower turn is taken first */
    _Atomic(const void *) owner; /* what differs for each thread; NULL: free */
#endif
};

/* The initial value of a static lock, which needs no sg_lock_init(). It is the only lock of its rank. */
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

/* The slow half of sg_lock(): waits until the lock is the caller's. */
void sg_lock_wait(struct sg_lock *lock);

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

/* Takes the lock, and waits for it without limit. The thread does not hold it yet: locks are not recursive. */
static inline void sg_lock(struct sg_lock *lock)
{
    uint32_t expected = 0;
    sg_lock_check_order(lock);
    if (!atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
        sg_lock_wait(lock);
    sg_lock_taken(lock);
}

/* Takes the lock if it is free, and returns true then. Nobody waits in it, so the order of ranks does not matter. */
static inline bool sg_lock_try(struct sg_lock *lock)
{
    uint32_t expected = 0;
    bool taken =
        atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed);
    if (taken)
        sg_lock_taken(lock);
    return taken;
}

/* True if the lock is free at once or becomes so within a second; it is not the caller's then. Looks each millisecond. A
   holder that has left by a long jump keeps it for ever. */
bool sg_lock_comes_free(struct sg_lock *lock);

/* Gives the lock back. All that the thread has written is visible to the next holder (release, acquire). */
static inline void sg_unlock(struct sg_lock *lock)
{
    assert(atomic_load_explicit(&lock->word, memory_order_relaxed) == 1);
    sg_lock_given_back(lock);
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

#endif
