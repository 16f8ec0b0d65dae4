/* A write whose reader is gone ends nobody, runs no handler, and leaves the signals of the program as they were. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "own_write.h"

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals++;
}

/* The writing end of a pipe that nobody reads. */
static int unread_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    return ends[1];
}

static bool is_pending(int signal)
{
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, signal);
}

static bool is_blocked(int signal)
{
    sigset_t blocked;
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    return sigismember(&blocked, signal);
}

static void nobody_reads(void **state)
{
    (void)state;
    void (*const action[])(int) = {SIG_DFL, SIG_IGN, count};
    int fd = unread_pipe();
    for (size_t i = 0; i < sizeof action / sizeof *action; i++) {
        signal(SIGPIPE, action[i]);
        errno = ENOTTY;
        assert_int_equal(sg_own_write(fd, "text\n", 5), -EPIPE);
        assert_int_equal(errno, ENOTTY);
        assert_false(is_blocked(SIGPIPE));
        assert_false(is_pending(SIGPIPE));
    }
    assert_int_equal(signals, 0);
    assert_true(signal(SIGPIPE, SIG_DFL) == count);
    close(fd);
}

/* The program has blocked the signal: what it finds pending is what it would find without the write. */
static void blocked_before(void **state)
{
    (void)state;
    sigset_t one, before;
    int fd = unread_pipe();
    sigemptyset(&one);
    sigaddset(&one, SIGPIPE);
    signal(SIGPIPE, count);
    signals = 0;
    sigprocmask(SIG_BLOCK, &one, &before);
    assert_int_equal(sg_own_write(fd, "text\n", 5), -EPIPE);
    assert_false(is_pending(SIGPIPE));
    assert_true(is_blocked(SIGPIPE));
    raise(SIGPIPE);
    assert_int_equal(sg_own_write(fd, "text\n", 5), -EPIPE);
    assert_true(is_pending(SIGPIPE));
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(signals, 1);
    signal(SIGPIPE, SIG_DFL);
    close(fd);
}

static void file_at_its_limit(void **state)
{
    (void)state;
    char path[] = "/tmp/segalloc-own-write-XXXXXX";
    struct rlimit before, small;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){.rlim_cur = 3, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    int error = sg_own_write(fd, "text\n", 5);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(error, -EFBIG);
    assert_false(is_pending(SIGXFSZ));
    assert_int_equal(lseek(fd, 0, SEEK_END), 3);
    close(fd);
}

static void all_is_written(void **state)
{
    (void)state;
    char text[5];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(sg_own_write(ends[1], "text\n", 5), 0);
    assert_int_equal(read(ends[0], text, sizeof text), 5);
    assert_memory_equal(text, "text\n", 5);
    assert_int_equal(sg_own_write(-1, "text\n", 5), -EBADF);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_reads),
        cmocka_unit_test(blocked_before),
        cmocka_unit_test(file_at_its_limit),
        cmocka_unit_test(all_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
