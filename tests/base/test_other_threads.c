/* Threads that are runnable, and kept from running, are waited for; no others are. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "other_threads.h"

static const uint64_t LONG_NS = 20000000000u, SHORT_NS = 1;

static struct {
    atomic_bool stop, up;
    int pipe[2];
} play;

static uint64_t ran_ns(pthread_t thread)
{
    struct timespec run;
    clockid_t clock;
    assert_int_equal(pthread_getcpuclockid(thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &run), 0);
    return (uint64_t)run.tv_sec * 1000000000u + (uint64_t)run.tv_nsec;
}

static int start_afresh(void **state)
{
    (void)state;
    atomic_store(&play.stop, false);
    atomic_store(&play.up, false);
    return pipe(play.pipe);
}

static int end(void **state)
{
    (void)state;
    close(play.pipe[0]);
    close(play.pipe[1]);
    return 0;
}

static void *runs(void *unused)
{
    atomic_store(&play.up, true);
    while (!atomic_load(&play.stop)) {
    }
    return unused;
}

static void *sleeps(void *unused)
{
    char byte;
    atomic_store(&play.up, true);
    (void)!read(play.pipe[0], &byte, 1);
    return unused;
}

static void stay_on_this_processor(cpu_set_t *ret_before)
{
    cpu_set_t one;
    assert_int_equal(sched_getaffinity(0, sizeof *ret_before, ret_before), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); /* threads that begin later stay there too */
}

/* It shares the processor with this thread, so it runs while this one rests only. */
static void one_that_is_kept_from_running_is_waited_for(void **state)
{
    (void)state;
    cpu_set_t all;
    pthread_t thread;
    stay_on_this_processor(&all);
    assert_int_equal(pthread_create(&thread, NULL, runs, NULL), 0);
    while (!atomic_load(&play.up))
        sched_yield();
    uint64_t before = ran_ns(thread);
    assert_true(sg_other_threads_pass(LONG_NS));
    assert_true(ran_ns(thread) - before >= 50000);
    atomic_store(&play.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* One that waits in the kernel for something that may never come. */
static void one_that_sleeps_is_not_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, sleeps, NULL), 0);
    while (!atomic_load(&play.up))
        sched_yield();
    errno = 77;
    assert_true(sg_other_threads_pass(LONG_NS));
    assert_int_equal(errno, 77);
    assert_int_equal(write(play.pipe[1], "", 1), 1);
    pthread_join(thread, NULL);
    assert_true(sg_other_threads_pass(SHORT_NS)); /* there is none but this one */
}

/* Runnable threads that have not run enough when the time is over; one of them has not for sure, because they share a
   processor. */
static void the_time_has_a_limit(void **state)
{
    enum { MANY = 8 };
    (void)state;
    cpu_set_t all;
    pthread_t thread[MANY];
    stay_on_this_processor(&all);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, runs, NULL), 0);
    bool passed = sg_other_threads_pass(SHORT_NS);
    atomic_store(&play.stop, true);
    for (int i = 0; i < MANY; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_false(passed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_is_kept_from_running_is_waited_for, start_afresh, end),
        cmocka_unit_test_setup_teardown(one_that_sleeps_is_not_waited_for, start_afresh, end),
        cmocka_unit_test_setup_teardown(the_time_has_a_limit, start_afresh, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
