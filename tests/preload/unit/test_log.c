/* Lines go to standard error, also where the program has put another file there, and never into a file that merely got its
   number. Each case is a child that does something with descriptor 2 and then says a line. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "process/log.h"

#define SAID "segalloc: said\n"

static char first[] = "/tmp/test_log.first.XXXXXX", second[] = "/tmp/test_log.second.XXXXXX";

/* A deed of the child after the library was loaded, with the name of another file. */
typedef void change_fn(const char *path);

static void put(int from, int to)
{
    if (from != to && dup2(from, to) < 0)
        _exit(2);
}

static void change_nothing(const char *path)
{
    (void)path;
}

static void change_close(const char *path)
{
    (void)path;
    close(2);
}

/* Programs that use the lowest free number. */
static void change_open(const char *path)
{
    close(2);
    if (open(path, O_RDWR) != 2)
        _exit(2);
}

static void change_open_close_on_exec(const char *path)
{
    close(2);
    if (open(path, O_WRONLY | O_APPEND | O_CLOEXEC) != 2)
        _exit(2);
}

/* Redirections. */
static void change_redirect(const char *path)
{
    put(open(path, O_RDWR), 2);
}

static void change_redirect_both(const char *path)
{
    int file = open(path, O_WRONLY);
    put(file, 1);
    put(file, 2);
    close(file);
}

static void change_redirect_to_log(const char *path)
{
    int file = open(path, O_WRONLY | O_APPEND);
    put(file, 2);
    close(file);
}

static void change_redirect_and_back(const char *path)
{
    int before = dup(2);
    put(open(path, O_RDWR), 2);
    put(before, 2);
    close(before);
}

/* Another file with the same contents is no twin, nor is the file itself, opened once more in another way. */
static void change_open_beside_others(const char *path)
{
    (void)!open(path, O_RDONLY);
    change_open(path);
}

static bool child_says(change_fn *change)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        put(open(first, O_WRONLY | O_TRUNC), 2);
        sg_log_keep();
        change(second);
        errno = EXDEV;
        sg_log_line("said");
        _exit(errno == EXDEV ? 0 : 1);
    }
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void expect(const char *path, const char *text)
{
    char bytes[256] = "";
    int file = open(path, O_RDWR);
    assert_true(read(file, bytes, sizeof bytes - 1) >= 0);
    assert_int_equal(ftruncate(file, 0), 0);
    close(file);
    assert_string_equal(bytes, text);
}

static void test_lines_go_to_standard_error(void **state)
{
    (void)state;
    static const struct {
        change_fn *change;
        const char *first, *second;
    } cases[] = {
        {change_nothing, SAID, ""},
        {change_close, "", ""},
        {change_open, "", ""},
        {change_open_close_on_exec, "", ""},
        {change_open_beside_others, "", ""},
        {change_redirect, "", SAID},
        {change_redirect_both, "", SAID},
        {change_redirect_to_log, "", SAID},
        {change_redirect_and_back, SAID, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(child_says(cases[i].change));
        expect(first, cases[i].first);
        expect(second, cases[i].second);
    }
}

/* A pipe that the program hands to another one, and closes at its own number. */
static void test_redirected_to_a_pipe(void **state)
{
    (void)state;
    int ends[2];
    char bytes[64] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        sg_log_keep();
        put(ends[1], 2);
        close(ends[1]);
        sg_log_line("said");
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], bytes, sizeof bytes), strlen(SAID));
    assert_string_equal(bytes, SAID);
    close(ends[0]);
    waitpid(child, NULL, 0);
}

/* The process begins without one. */
static void test_no_standard_error_at_first(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        close(2);
        sg_log_keep();
        change_open(second);
        sg_log_line("said");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    expect(second, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_go_to_standard_error),
        cmocka_unit_test(test_redirected_to_a_pipe),
        cmocka_unit_test(test_no_standard_error_at_first),
    };
    close(mkstemp(first));
    close(mkstemp(second));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(first);
    unlink(second);
    return failed;
}
