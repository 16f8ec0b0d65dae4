/* A mutex of one word for short critical sections: one compare-and-swap to take, one exchange to give back, and the
   kernel only where threads really wait. Plain memory, so a forked child may simply initialise it anew. */
#ifndef SG_LOCK_H
#define SG_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct sg_lock {
    _Atomic uint32_t word; /* 0 free, 1 held, 2 held and somebody waits */
};

void sg_lock_wait(struct sg_lock *lock); /* the slow half of sg_lock() */
void sg_lock_wake(struct sg_lock *lock); /* the slow half of sg_unlock() */

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

static inline void sg_unlock(struct sg_lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        sg_lock_wake(lock);
}

#endif
