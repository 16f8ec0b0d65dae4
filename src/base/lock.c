#include "lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A critical section lasts well under a microsecond, a futex wait and wake several: so look again for about as long
   as a section lasts before sleeping. */
enum { SPINS = 100 };

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sg_lock_wait(struct sg_lock *lock)
{
    for (int i = 0; i < SPINS; i++) {
        uint32_t expected = 0;
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->word, &expected, 1, memory_order_acquire, memory_order_relaxed))
            return;
        pause_briefly();
    }
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void sg_lock_wake(struct sg_lock *lock)
{
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
