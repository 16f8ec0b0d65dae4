/* The lock keeps threads apart, and none of them sleeps for ever. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "lock.h"

enum { THREADS = 4, ROUNDS = 20000 };

struct shared {
    struct sg_lock lock;
    uint64_t count; /* plain on purpose: only the lock protects it */
    int inside;
    int clashes;
};

static void *work(void *argument)
{
    struct shared *shared = argument;
    for (int i = 0; i < ROUNDS; i++) {
        sg_lock(&shared->lock);
        shared->clashes += shared->inside++ != 0;
        shared->count++;
        if (i % 512 == 0)
            sched_yield(); /* long enough for the others to go to sleep in the kernel */
        shared->inside--;
        sg_unlock(&shared->lock);
    }
    return NULL;
}

static void one_thread_at_a_time_holds_the_lock(void **state)
{
    (void)state;
    static struct shared shared;
    pthread_t thread[THREADS];
    sg_lock_init(&shared.lock, SG_RANK_NONE, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &shared), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(shared.count, (uint64_t)THREADS * ROUNDS);
    assert_int_equal(shared.clashes, 0);
    assert_int_equal(shared.lock.word, 0);
}

static void *take_and_return(void *argument)
{
    struct sg_lock *lock = argument;
    sg_lock(lock);
    sg_unlock(lock);
    return NULL;
}

/* A waiter that has stopped spinning and sleeps finds the lock free all the same. */
static void a_sleeping_waiter_gets_the_lock(void **state)
{
    (void)state;
    static struct sg_lock lock;
    pthread_t thread;
    sg_lock_init(&lock, SG_RANK_NONE, 0);
    sg_lock(&lock);
    assert_int_equal(pthread_create(&thread, NULL, take_and_return, &lock), 0);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    assert_int_equal(lock.word, 1);
    sg_unlock(&lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(lock.word, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_at_a_time_holds_the_lock),
        cmocka_unit_test(a_sleeping_waiter_gets_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
