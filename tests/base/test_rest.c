/* A rest lasts as long as was asked for, and no thread ends in it. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <time.h>

#include <cmocka.h>

#include "rest.h"

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals++;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void signals_make_it_no_shorter(void **state)
{
    (void)state;
    enum { REST_NS = 50000000, EVERY_US = 1000 };
    const struct sigaction action = {.sa_handler = count};
    const struct itimerval every = {{.tv_usec = EVERY_US}, {.tv_usec = EVERY_US}}, never = {0};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    uint64_t began = now_ns();
    errno = ENOTTY;
    sg_rest(REST_NS);
    int after = errno;
    uint64_t took = now_ns() - began;
    setitimer(ITIMER_REAL, &never, NULL);
    assert_true(took >= REST_NS);
    assert_true(signals > 0);
    assert_int_equal(after, ENOTTY);
}

#ifndef __SANITIZE_ADDRESS__
static void *rest_cancelled(void *done)
{
    pthread_cancel(pthread_self());
    sg_rest(1000);
    int before = sg_cancel_off();
    pthread_testcancel();
    *(bool *)done = true;
    sg_cancel_restore(before);
    pthread_testcancel();
    *(bool *)done = false;
    return NULL;
}

static void no_thread_is_cancelled_in_it(void **state)
{
    (void)state;
    pthread_t thread;
    void *result = NULL;
    bool done = false;
    pthread_create(&thread, NULL, rest_cancelled, &done);
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_true(done);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_make_it_no_shorter),
#ifndef __SANITIZE_ADDRESS__ /* which takes the unwinding of a cancelled thread for a fault */
        cmocka_unit_test(no_thread_is_cancelled_in_it),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
