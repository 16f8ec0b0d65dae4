/* Builds with assertions notice a wrong order of locks, a missing one, and one of another thread. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lock.h"

static struct sg_lock grow, setup, first, second, unranked;

static int init(void **state)
{
    (void)state;
    sg_lock_init(&grow, SG_RANK_GROW, 0);
    sg_lock_init(&setup, SG_RANK_SETUP, 0);
    sg_lock_init(&first, SG_RANK_DEVICE, 0);
    sg_lock_init(&second, SG_RANK_DEVICE, 1);
    sg_lock_init(&unranked, SG_RANK_NONE, 0);
    return 0;
}

/* Runs what must abort the process, in a child. Its line holds `expected`. */
static void expect_abort(void (*run)(void), const char *expected)
{
    int ends[2], status;
    char line[256] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        run();
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], line, sizeof line - 1) >= 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(line, expected))
        fail_msg("not aborted with \"%s\", but status %d and \"%s\"", expected, status, line);
}

static void take_setup_after_device(void)
{
    sg_lock(&first);
    sg_lock(&setup);
}

static void take_lower_turn_last(void)
{
    sg_lock(&second);
    sg_lock(&first);
}

static void take_twice(void)
{
    sg_lock(&unranked);
    sg_lock(&unranked);
}

static void take_after_try(void)
{
    (void)sg_lock_try(&first);
    sg_lock(&grow);
}

static void wrong_order_is_noticed(void **state)
{
    (void)state;
    expect_abort(take_setup_after_device, "wrong order: taking SETUP (0) after DEVICE");
    expect_abort(take_lower_turn_last, "wrong order: taking DEVICE (0) after DEVICE");
    expect_abort(take_twice, "taken twice");
    expect_abort(take_after_try, "wrong order: taking GROW (0) after DEVICE");
}

static void need_first(void)
{
    SG_ASSERT_HELD(&first);
}

static void need_first_after_unlock(void)
{
    sg_lock(&first);
    SG_ASSERT_HELD(&first);
    sg_unlock(&first);
    SG_ASSERT_HELD(&first);
}

static void *take_first(void *unused)
{
    (void)unused;
    sg_lock(&first);
    return NULL;
}

static void in_other_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, take_first, NULL) == 0)
        pthread_join(thread, NULL);
}

static void need_first_of_other_thread(void)
{
    in_other_thread();
    SG_ASSERT_HELD(&first);
}

static void give_back_first_of_other_thread(void)
{
    in_other_thread();
    sg_unlock(&first);
}

static void missing_lock_is_noticed(void **state)
{
    (void)state;
    expect_abort(need_first, "&first is not held by this thread");
    expect_abort(need_first_after_unlock, "&first is not held by this thread");
    expect_abort(need_first_of_other_thread, "&first is not held by this thread");
    expect_abort(give_back_first_of_other_thread, "given back by a thread that does not hold it: DEVICE (0)");
}

static void wait_with_device_lock(void)
{
    sg_lock(&grow);
    sg_lock(&first);
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
}

static void wait_with_a_lock_is_noticed(void **state)
{
    (void)state;
    expect_abort(wait_with_device_lock, "held where the thread may wait: DEVICE (0)");
    sg_lock(&grow);
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
    sg_unlock(&grow);
}

/* What is allowed: ranks upwards, turns upwards, giving back in any order, any order by sg_lock_try(). */
static void right_order_passes(void **state)
{
    (void)state;
    sg_lock(&grow);
    sg_lock(&setup);
    sg_lock(&first);
    sg_lock(&second);
    sg_lock(&unranked);
    SG_ASSERT_HELD(&first);
    sg_unlock(&setup);
    sg_unlock(&first);
    assert_true(sg_lock_try(&setup));
    assert_false(sg_lock_try(&second));
    sg_unlock(&second);
    sg_unlock(&unranked);
    sg_unlock(&setup);
    sg_lock(&setup);
    sg_unlock(&setup);
    sg_unlock(&grow);
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_NONE);
}

/* A forked child makes locks anew: neither they nor their order count as held then. */
static void new_lock_is_not_held(void **state)
{
    (void)state;
    sg_lock(&first);
    sg_lock_init(&first, SG_RANK_DEVICE, 0);
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_NONE);
    expect_abort(need_first, "&first is not held by this thread");
    sg_lock(&grow);
    sg_unlock(&grow);
}

static atomic_bool over;
static atomic_uint handled;

static void take_grow(int number)
{
    (void)number;
    sg_lock(&grow);
    sg_unlock(&grow);
    atomic_fetch_add(&handled, 1);
}

static void *take_unranked(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        sg_lock(&unranked);
        sg_unlock(&unranked);
        sg_lock_assert_none_from(SG_RANK_NONE, "between two rounds");
    }
    return NULL;
}

/* The handler's lock may come after an unranked one, and must not count as held once it has given it back. */
static void lock_in_a_handler(void)
{
    enum { HANDLED = 5000 };
    struct sigaction action = {.sa_handler = take_grow}, standard = {.sa_handler = SIG_IGN};
    pthread_t thread;
    sigaction(SIGUSR1, &action, NULL);
    if (pthread_create(&thread, NULL, take_unranked, NULL) != 0)
        abort();
    for (unsigned sent = 0; atomic_load(&handled) < HANDLED && sent < 100 * HANDLED; sent++)
        pthread_kill(thread, SIGUSR1);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &standard, NULL);
}

static void handlers_may_take_locks(void **state)
{
    (void)state;
    lock_in_a_handler();
    assert_true(atomic_load(&handled) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(wrong_order_is_noticed, init),
        cmocka_unit_test_setup(missing_lock_is_noticed, init),
        cmocka_unit_test_setup(wait_with_a_lock_is_noticed, init),
        cmocka_unit_test_setup(right_order_passes, init),
        cmocka_unit_test_setup(new_lock_is_not_held, init),
        cmocka_unit_test_setup(handlers_may_take_locks, init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
