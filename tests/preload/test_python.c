/* What is told of a thread that runs Python, by an interpreter that is none. Each case is a process of its own, since
   what was found out of an interpreter is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "python.h"
#include "resolve.h"
#include "stub_python.h"

static bool there = true;

static void *look_up(void *handle, const char *name)
{
    (void)handle;
    return there ? stub_python_symbol(name) : NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

static struct stub_text file, name;
static struct stub_code code;
static struct stub_frame frame[STUB_FRAMES];
static struct stub_cframe cframe = {&frame[0]};
static struct stub_thread thread = {.cframe = &cframe};

/* Frames of one function, each at another line, the innermost at line 100. */
static void stack(int deep)
{
    stub_text(&file, "/home/me/train.py");
    stub_text(&name, "Model.forward");
    stub_code(&code, &file, &name, 100);
    for (int i = 0; i < deep; i++)
        stub_frame(&frame[i], &code, i, i + 1 < deep ? &frame[i + 1] : NULL);
    stub_python.thread = &thread;
}

static void expect_line(const struct sg_frame *at, uint32_t line)
{
    char path[64], function[64];
    uint32_t told;
    assert_true(sg_python_describe(at, path, function, sizeof path, &told));
    assert_string_equal(path, "/home/me/train.py");
    assert_string_equal(function, "Model.forward");
    assert_int_equal(told, line);
}

static void reads(void)
{
    struct sg_frame found[4];
    stack(3);
    assert_int_equal(sg_python_frames(found, 4), 3);
    expect_line(&found[0], 100);
    expect_line(&found[2], 102);
    stack(STUB_FRAMES);
    assert_int_equal(sg_python_frames(found, 4), 4);
    expect_line(&found[3], 103);
    frame[1].owner = 3;
    frame[1].code = NULL;
    assert_int_equal(sg_python_frames(found, 4), 4);
    expect_line(&found[1], 102);
    assert_int_equal(stub_python.asked + stub_python.dropped + stub_python.kept, 0);
}

static void tells_code_at_one_address_apart(void)
{
    struct sg_frame before, after;
    stack(1);
    assert_int_equal(sg_python_frames(&before, 1), 1);
    code.firstlineno = 200; /* another function came there */
    assert_int_equal(sg_python_frames(&after, 1), 1);
    assert_true(before.code == after.code && before.at != after.at);
}

static void reads_other_letters(void)
{
    static const uint16_t letters[] = {'G', 'r', 0xf6, 0xdf, 'e', 0x4e2d};
    struct sg_frame found;
    char path[64], function[64];
    uint32_t line;
    stack(1);
    name.length = 6;
    name.state = 1 << 5 | 2 << 2;
    memcpy(name.bytes + 16, letters, sizeof letters);
    assert_int_equal(sg_python_frames(&found, 1), 1);
    assert_true(sg_python_describe(&found, path, function, sizeof path, &line));
    assert_string_equal(function, "Größe中");
    assert_true(sg_python_describe(&found, path, function, 7, &line));
    assert_true(strlen(function) < 7);
}

static void nothing_where_none_runs(void)
{
    struct sg_frame found;
    stack(1);
    stub_python.thread = NULL;
    assert_int_equal(sg_python_frames(&found, 1), 0);
    stub_python.thread = &thread;
    stub_python.initialized = 0; /* it ends */
    assert_int_equal(sg_python_frames(&found, 1), 0);
    stub_python.initialized = 1;
    cframe.current = NULL;
    assert_int_equal(sg_python_frames(&found, 1), 0);
}

static void nothing_without_it(void)
{
    struct sg_frame found;
    there = false;
    assert_int_equal(sg_python_frames(&found, 1), 0);
}

/* Asked, because it is another version; or one whose frames are not what they should be. */
static void asks(void)
{
    struct sg_frame found[4];
    assert_int_equal(sg_python_frames(found, 4), 0); /* another thread holds the lock */
    assert_int_equal(stub_python.asked, 0);
    stub_python.holder = &thread;
    assert_int_equal(sg_python_frames(found, 4), 3);
    assert_int_equal(stub_python.asked, 4);
    assert_int_equal(stub_python.dropped, 3 + 2); /* code, and the frames but the first */
    expect_line(&found[0], 100);
    expect_line(&found[2], 102);
    assert_int_equal(stub_python.kept, 2);
}

static void asks_another_version(void)
{
    stack(3);
    stub_python.version = "3.99.0";
    asks();
}

static void asks_where_it_is_not_as_it_should_be(void)
{
    stack(3);
    frame[2].code = (const struct stub_code *)&file;
    struct sg_frame found[4];
    assert_int_equal(sg_python_frames(found, 4), 0);
    stack(3);
    cframe.current = (struct stub_frame *)8; /* nothing is there */
    assert_int_equal(sg_python_frames(found, 4), 0);
}

static void in_a_process(void **state)
{
    void (*run)(void) = *(void (**)(void))*state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    static void (*cases[])(void) = {reads, tells_code_at_one_address_apart, reads_other_letters, nothing_where_none_runs,
        nothing_without_it, asks_another_version, asks_where_it_is_not_as_it_should_be};
    struct CMUnitTest tests[sizeof cases / sizeof *cases];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        tests[i] = (struct CMUnitTest){"python", in_a_process, NULL, NULL, &cases[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
