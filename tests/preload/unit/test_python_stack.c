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

#include "sites/python_stack.h"
#include "process/symbols.h"
#include "stub_python.h"

static bool there = true;
static const char *lacks;            /* what is not exported */
static int collects = -1, collected; /* whether it does; -1: that cannot be asked */
static int first_line;               /* of all code; 0: as the stub has it, below: there is none */

static int collect_off(void)
{
    int before = collects;
    collects = 0;
    return before;
}

static int collect_on(void)
{
    collects = 1;
    return collected++;
}

static int line_of(const void *code, int at)
{
    (void)code;
    return first_line + at;
}

static void *look_up(void *handle, const char *name)
{
    int (*switches[2])(void) = {collect_off, collect_on};
    int (*lines)(const void *, int) = line_of;
    void *found;
    (void)handle;
    if (!there || (lacks && strcmp(name, lacks) == 0))
        return NULL;
    if (collects >= 0 && strncmp(name, "PyGC_", 5) == 0) {
        memcpy(&found, &switches[strcmp(name, "PyGC_Enable") == 0], sizeof found);
        return found;
    }
    if (first_line && strcmp(name, "PyCode_Addr2Line") == 0) {
        memcpy(&found, &lines, sizeof found);
        return found;
    }
    return stub_python_symbol(name);
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
    assert_int_equal(sg_python_frames(found, 4, 0), 3);
    expect_line(&found[0], 100);
    expect_line(&found[2], 102);
    stack(STUB_FRAMES);
    assert_int_equal(sg_python_frames(found, 4, 0), 4);
    expect_line(&found[3], 103);
    frame[1].owner = 3;
    frame[1].code = NULL;
    assert_int_equal(sg_python_frames(found, 4, 0), 4);
    expect_line(&found[1], 102);
    assert_int_equal(stub_python.asked + stub_python.dropped + stub_python.kept, 0);
}

/* The innermost, the gap, the outermost; whole as soon as it has room. */
static void keeps_the_outermost(void)
{
    struct sg_frame found[STUB_FRAMES];
    for (unsigned deep = 1; deep <= STUB_FRAMES; deep++) {
        for (unsigned outer = 1; outer <= 2; outer++) {
            stack((int)deep);
            unsigned count = sg_python_frames(found, 5, outer);
            assert_int_equal(count, deep < 5 ? deep : 5);
            for (unsigned i = 0; i < count; i++) {
                bool from_outside = deep > 5 && i >= 5 - outer;
                if (deep > 5 && i == 5 - outer - 1)
                    assert_int_equal(found[i].code, 0);
                else
                    expect_line(&found[i], 100 + (from_outside ? deep - (5 - i) : i));
            }
        }
    }
}

static void tells_code_at_one_address_apart(void)
{
    struct sg_frame before, after;
    stack(1);
    assert_int_equal(sg_python_frames(&before, 1, 0), 1);
    code.firstlineno = 200; /* another function came there */
    assert_int_equal(sg_python_frames(&after, 1, 0), 1);
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
    assert_int_equal(sg_python_frames(&found, 1, 0), 1);
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
    assert_int_equal(sg_python_frames(&found, 1, 0), 0);
    stub_python.thread = &thread;
    stub_python.initialized = 0; /* it ends */
    assert_int_equal(sg_python_frames(&found, 1, 0), 0);
    stub_python.initialized = 1;
    cframe.current = NULL;
    assert_int_equal(sg_python_frames(&found, 1, 0), 0);
}

static void nothing_without_it(void)
{
    struct sg_frame found;
    there = false;
    assert_int_equal(sg_python_frames(&found, 1, 0), 0);
}

/* Asked, because it is another version; or one whose frames are not what they should be. */
static void asks(void)
{
    struct sg_frame found[4];
    assert_int_equal(sg_python_frames(found, 4, 0), 0); /* another thread holds the lock */
    assert_int_equal(stub_python.asked, 0);
    stub_python.holder = &thread;
    assert_int_equal(sg_python_frames(found, 4, 0), 3);
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

/* A version that is known, of which something is not exported, or that has no lock. */
static void asks_without_reading(void)
{
    stack(3);
    asks();
}

static void asks_without_a_lock(void)
{
    stub_python.version = "3.12.1 free-threading build";
    asks_without_reading();
}

static void asks_where_it_is_not_as_it_should_be(void)
{
    stack(3);
    frame[2].code = (const struct stub_code *)&file;
    struct sg_frame found[4];
    assert_int_equal(sg_python_frames(found, 4, 0), 0);
    stack(3);
    cframe.current = (struct stub_frame *)8; /* nothing is there */
    assert_int_equal(sg_python_frames(found, 4, 0), 0);
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

static unsigned frames(void)
{
    struct sg_frame found[4];
    return sg_python_frames(found, 4, 0);
}

/* One thing each that is not what it should be. Nobody holds the lock, so that nothing is asked for instead. */
static void believes_nothing_else(void)
{
    static struct stub_text no_text;
    struct stub_code other;
    struct stub_frame *const nowhere = (struct stub_frame *)8;
    stack(3);
    no_text = file;
    no_text.type = &no_text;
    stub_code(&other, &no_text, &name, 1);
    frame[1].code = &other;
    assert_int_equal(frames(), 0);
    stub_code(&other, &file, &no_text, 1);
    assert_int_equal(frames(), 0);
    stub_code(&other, (const struct stub_text *)nowhere, &name, 1);
    assert_int_equal(frames(), 0);
    stub_code(&other, &file, (const struct stub_text *)nowhere, 1);
    assert_int_equal(frames(), 0);
    stub_code(&other, &file, &name, 1);
    other.qualname = (const struct stub_text *)nowhere;
    assert_int_equal(frames(), 0);
    stub_code(&other, &file, &name, 1);
    other.type = &other;
    assert_int_equal(frames(), 0);
    frame[1].code = (const struct stub_code *)nowhere;
    assert_int_equal(frames(), 0);
    frame[1].code = &code;
    frame[2].previous = nowhere;
    assert_int_equal(frames(), 0);
    frame[2].previous = NULL;
    thread.cframe = (struct stub_cframe *)nowhere;
    assert_int_equal(frames(), 0);
    thread.cframe = &cframe;
    stub_python.thread = (struct stub_thread *)nowhere;
    assert_int_equal(frames(), 0);
    stub_python.thread = &thread;
    for (int i = 0; i < 3; i++)
        frame[i].owner = 3; /* none is Python's own */
    assert_int_equal(frames(), 0);
    frame[0].owner = 0;
    assert_int_equal(frames(), 1);
    frame[1].owner = frame[2].owner = 0; /* believed from then on */
    assert_int_equal(frames(), 3);
    assert_int_equal(stub_python.asked, 0);
}

/* Deep stacks are looked at as far as they are for a sign. */
static void believes_the_top_of_a_deep_stack(void)
{
    stack(STUB_FRAMES);
    frame[STUB_FRAMES - 1].previous = &frame[0]; /* no end */
    assert_int_equal(frames(), 4);
}

static void nothing_where_it_cannot_be_asked(void)
{
    stack(3);
    stub_python.version = "3.99.0";
    stub_python.holder = &thread;
    assert_int_equal(frames(), 0);
    assert_int_equal(stub_python.asked + stub_python.dropped, 0);
}

/* A version that could be read, once its frames are what they should be. */
static void nothing_until_it_can_be_read(void)
{
    stack(3);
    stub_python.holder = &thread;
    frame[2].code = (const struct stub_code *)&file;
    assert_int_equal(frames(), 0);
    stack(3);
    assert_int_equal(frames(), 3);
    assert_int_equal(stub_python.asked + stub_python.dropped, 0);
}

/* A process for each function that is not exported. */
static void each_is_needed(void **state)
{
    static const char *const asked[] = {"Py_IsInitialized", "PyGILState_GetThisThreadState", "Py_GetVersion",
        "_PyThreadState_UncheckedGet", "PyEval_GetFrame", "PyFrame_GetBack", "PyFrame_GetCode", "PyFrame_GetLineNumber",
        "Py_DecRef", "Py_IncRef", "PyObject_GetAttrString", "PyUnicode_AsUTF8"};
    static const char *const read[] = {"PyCode_Type", "PyUnicode_Type", "PyCode_Addr2Line"};
    void (*run)(void) = nothing_where_it_cannot_be_asked;
    void *test = &run;
    (void)state;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        lacks = asked[i];
        in_a_process(&test);
    }
    run = nothing_until_it_can_be_read;
    for (size_t i = 4; i < sizeof asked / sizeof *asked; i++) {
        lacks = asked[i];
        in_a_process(&test);
    }
    run = asks_without_reading;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        lacks = read[i];
        in_a_process(&test);
    }
    lacks = NULL;
}

/* In 3.11 a frame that is asked for may collect garbage, which the program's code may be run by. */
static void collects_no_garbage(void)
{
    stack(3);
    stub_python.version = "3.11.4 (stub)";
    stub_python.holder = &thread;
    static struct {
        struct stub_cframe its;
        uint64_t nowhere; /* where 3.11 has the frame */
    } other = {{&frame[0]}, 8};
    thread.cframe = &other.its;
    collects = 1;
    assert_int_equal(frames(), 3);
    assert_true(collects == 1 && collected == 1);
    collects = 0; /* the program has turned it off */
    assert_int_equal(frames(), 3);
    assert_true(collects == 0 && collected == 1);
}

/* A stack that is deeper than there is room. */
static void asks_for_the_top(void)
{
    struct sg_frame found[6] = {{0, 0}};
    stack(STUB_FRAMES);
    stub_python.version = "3.99.0";
    stub_python.holder = &thread;
    assert_int_equal(sg_python_frames(found, 4, 0), 4);
    expect_line(&found[3], 103);
    assert_true(!found[4].code);
}

/* Where it cannot be turned off it is not turned on either; nor is it turned off for good. */
static void collects_what_it_must(void)
{
    static struct {
        struct stub_cframe its;
        uint64_t nowhere;
    } other = {{&frame[0]}, 8};
    stack(3);
    stub_python.version = "3.11.4 (stub)";
    stub_python.holder = &thread;
    thread.cframe = &other.its;
    assert_int_equal(frames(), 3);
    assert_true(collects == 1 && collected == 0);
}

static void collects_as_it_likes(void)
{
    stack(3);
    stub_python.version = "3.99.0";
    stub_python.holder = &thread;
    assert_int_equal(frames(), 3);
    assert_int_equal(collected, 0);
}

static void garbage_is_left_alone_in_3_11_only(void **state)
{
    void (*run)(void) = collects_no_garbage;
    void *test = &run;
    (void)state;
    collects = 1;
    in_a_process(&test);
    run = collects_as_it_likes;
    in_a_process(&test);
    run = collects_what_it_must;
    lacks = "PyGC_Disable";
    in_a_process(&test);
    lacks = "PyGC_Enable";
    in_a_process(&test);
    lacks = NULL;
    collects = -1;
}

/* Texts that are not there, or longer than there is room. */
static void asks_for_texts(void)
{
    struct sg_frame found;
    char path[64], function[64];
    uint32_t line;
    stack(1);
    stub_python.version = "3.99.0";
    stub_python.holder = &thread;
    assert_int_equal(sg_python_frames(&found, 1, 0), 1);
    memset(path, '?', sizeof path);
    assert_true(sg_python_describe(&found, path, function, 5, &line));
    assert_string_equal(path, "/hom");
    assert_int_equal(path[5], '?');
    assert_int_equal(stub_python.dropped, 1 + 2);
    code.name = NULL;
    assert_false(sg_python_describe(&found, path, function, sizeof path, &line));
    assert_string_equal(function, "");
    code.filename = NULL;
    assert_false(sg_python_describe(&found, path, function, sizeof path, &line));
    assert_string_equal(path, "");
}

static void reads_letters_of_each_width(void)
{
    static const uint32_t four[] = {'a', 0x1f600, 0x10ffff, 0x7ff, 0x800, 0xffff, 0x7f, 0x80};
    static const unsigned char one[] = {'a', 0xe9, 0xff};
    struct sg_frame found;
    char path[64], function[64];
    uint32_t line;
    stack(1);
    name.state = 1 << 5 | 4 << 2;
    name.length = 8;
    memcpy(name.bytes + 16, four, sizeof four);
    assert_int_equal(sg_python_frames(&found, 1, 0), 1);
    assert_true(sg_python_describe(&found, path, function, sizeof path, &line));
    assert_string_equal(function, "a\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\x7f\xc2\x80");
    for (size_t room = 1; room < 24; room++) { /* never a part of a letter */
        memset(function, '?', sizeof function);
        assert_true(sg_python_describe(&found, path, function, room, &line));
        size_t length = strlen(function);
        assert_true(length < room && function[room] == '?' && (function[length] & 0xc0) != 0x80);
        assert_true(
            length == 0 || length == 1 || length == 5 || length == 9 || length == 11 || length == 14 || length >= 17);
    }
    name.state = 1 << 5 | 1 << 2;
    name.length = 3;
    memcpy(name.bytes + 16, one, sizeof one);
    assert_true(sg_python_describe(&found, path, function, sizeof path, &line));
    assert_string_equal(function, "a\xc3\xa9\xc3\xbf");
    name.state = 1 << 2; /* not in one piece with its characters */
    assert_true(sg_python_describe(&found, path, function, sizeof path, &line));
    assert_string_equal(function, "");
}

/* Frames as each version that is known lays them out, by the table of versions. */
static const struct version {
    const char *version;
    uint16_t thread_frame, cframe_frame, back, code, at;
    bool is_pointer;
    uint16_t unit, owner, filename, name, firstlineno, start, text, wide;
} versions[] = {
#define NONE 0xffff
#define PYTHON(...) {__VA_ARGS__},
#include "sites/python_stack.def"
};
enum { VERSIONS = sizeof versions / sizeof *versions };
static const struct version *laid_out;

static void put(unsigned char *object, uint16_t offset, const void *value)
{
    memcpy(object + offset, &value, sizeof value);
}

static void reads_a_version(void)
{
    static _Alignas(16) unsigned char object[6][512]; /* a thread, its middle, two frames, their code, a text */
    static _Alignas(16) unsigned char text[256];
    const struct version *v = laid_out;
    char full[32], path[64], function[64];
    struct sg_frame found[4];
    uint32_t line, begin = 400;
    snprintf(full, sizeof full, "%s7 (stub)", v->version);
    stub_python.version = full;
    stub_python.thread = (struct stub_thread *)object[0];
    bool middle = v->cframe_frame != NONE;
    put(object[0], v->thread_frame, middle ? object[1] : object[2]);
    if (middle)
        put(object[1], v->cframe_frame, object[2]);
    put(object[2], v->back, object[3]);
    for (int i = 0; i < 2; i++) {
        uint32_t units = (uint32_t)(20 * (i + 1) / v->unit);
        put(object[2 + i], v->code, object[4]);
        if (v->is_pointer)
            put(object[2 + i], v->at, object[4] + v->start + 20 * (i + 1));
        else
            memcpy(object[2 + i] + v->at, &units, sizeof units);
    }
    struct stub_text header;
    stub_text(&header, "");
    put(object[4], 8, stub_python_symbol("PyCode_Type"));
    memcpy(object[4] + v->firstlineno, &begin, sizeof begin);
    put(object[4], v->filename, text);
    put(object[4], v->name, text);
    header.length = 7;
    memcpy(text, &header, offsetof(struct stub_text, bytes));
    memcpy(text + v->text, "/a/b.py", 7);
    assert_int_equal(sg_python_frames(found, 4, 0), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(sg_python_describe(&found[i], path, function, sizeof path, &line));
        assert_string_equal(path, "/a/b.py");
        assert_string_equal(function, "/a/b.py");
        assert_int_equal(line, first_line < 0 ? begin : (uint32_t)first_line + 20 * (i + 1));
    }
    assert_int_equal(stub_python.asked, 0);
}

static void each_version(void **state)
{
    void (*run)(void) = reads_a_version;
    void *test = &run;
    (void)state;
    for (int i = 0; i < VERSIONS; i++) {
        laid_out = &versions[i];
        first_line = 500;
        in_a_process(&test);
        first_line = -500; /* where there is no line, that of the function */
        in_a_process(&test);
    }
    first_line = 0;
}

int main(void)
{
    static void (*cases[])(void) = {reads, keeps_the_outermost, tells_code_at_one_address_apart, reads_other_letters,
        nothing_where_none_runs, nothing_without_it, asks_another_version, asks_without_a_lock,
        asks_where_it_is_not_as_it_should_be, believes_nothing_else, believes_the_top_of_a_deep_stack, asks_for_texts,
        asks_for_the_top, reads_letters_of_each_width};
    enum { CASES = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[CASES + 3];
    for (size_t i = 0; i < CASES; i++)
        tests[i] = (struct CMUnitTest){"python", in_a_process, NULL, NULL, &cases[i]};
    tests[CASES] = (struct CMUnitTest)cmocka_unit_test(each_is_needed);
    tests[CASES + 1] = (struct CMUnitTest)cmocka_unit_test(garbage_is_left_alone_in_3_11_only);
    tests[CASES + 2] = (struct CMUnitTest)cmocka_unit_test(each_version);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
