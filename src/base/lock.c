#include "lock.h"

#include <time.h>

/* Whoever finds the lock held stays away for a while, longer each time: looking takes the cache line from the holder,
   which is about to need it again, so that two eager threads would be slower together than one alone. A waiter that
   has stayed away as long as MOST pauses a few times (some 20 us in all) sleeps: the holder has been descheduled or is
   asking the driver. */
enum { FIRST = 8, MOST = 256, ROUNDS = 12, NAP_NS = 50000 };

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sg_lock_wait(struct sg_lock *lock)
{
    unsigned pauses = FIRST;
    for (unsigned round = 0;; round++) {
        uint32_t expected = 0;
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
            return;
        if (round >= ROUNDS)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        for (unsigned i = 0; i < pauses; i++)
            pause_briefly();
        pauses = pauses < MOST ? 2 * pauses : MOST;
    }
}
