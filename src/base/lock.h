/* A mutex of one word for short critical sections: one locked instruction to take it, a plain store to give it back.

   Giving back does not look for waiters, which would cost a second locked instruction on every operation; a waiter that
   has spun for longer than a section lasts sleeps for a bounded time and looks again. So the lock also serves where it
   is held for long and rarely contended, at the price of waking up late by at most that time. Plain memory: a forked
   child may simply initialise it anew. */
#ifndef SG_LOCK_H
#define SG_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sg_lock {
    _Atomic uint32_t word; /* 0 free, 1 held */
};

void sg_lock_wait(struct sg_lock *lock); /* the slow half of sg_lock() */

static inline void sg_lock_init(struct sg_lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}

static inline void sg_lock(struct sg_lock *lock)
{
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
        sg_lock_wait(lock);
}

/* Takes it if it is free; whether it was. */
static inline bool sg_lock_try(struct sg_lock *lock)
{
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
        memory_order_relaxed);
}

static inline void sg_unlock(struct sg_lock *lock)
{
    assert(atomic_load_explicit(&lock->word, memory_order_relaxed) == 1);
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

#endif
