#include "lock.h"

#include <time.h>

/* A critical section lasts well under a microsecond: look for about as long before sleeping. */
enum { SPINS = 200, NAP_NS = 50000 };

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sg_lock_wait(struct sg_lock *lock)
{
    for (unsigned tries = 0;; tries++) {
        uint32_t expected = 0;
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
            return;
        if (tries < SPINS)
            pause_briefly();
        else /* the holder has been descheduled or is asking the driver */
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}
