/* Stacks of code: by the unwinder the first time, by what was learnt of frames afterwards, and the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmocka.h>

#include "sites/unwind.h"
#include "process/symbols.h"

/* What is in the library itself is left out: here all is, so the bounds of that are elsewhere (-D in the build). */
const char elsewhere_start[1], elsewhere_end[1];

/* The runtime's own functions, of which the calls are counted, and one may be lacking. */
static int unwound;
static const char *lacks;
static uintptr_t (*its_end)(void *context);

/* Not the one that unwinds: its caller is a frame of the stack. */
static uintptr_t count_end(void *context)
{
    unwound++;
    return its_end(context);
}

static void *look_up(void *handle, const char *name)
{
    uintptr_t (*ours)(void *) = count_end;
    void *found = dlsym(handle, name);
    if (!found || (lacks && strcmp(name, lacks) == 0))
        return NULL;
    if (strcmp(name, "_Unwind_GetCFA") != 0)
        return found;
    memcpy(&its_end, &found, sizeof found);
    memcpy(&found, &ours, sizeof found);
    return found;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

static struct sg_unwinder unwinder;
static struct sg_stack seen;

enum { KEPT = 16, OUTSIDE = 4 };

struct stack {
    struct sg_frame frame[KEPT];
    unsigned count;
};

static __attribute__((noinline)) struct stack take(void)
{
    struct stack stack = {.count = 0};
    stack.count = sg_unwind_frames(&unwinder, &seen, stack.frame, KEPT, OUTSIDE);
    __asm__ volatile("");
    return stack;
}

static __attribute__((noinline)) struct stack deeper(int left)
{
    struct stack stack = left ? deeper(left - 1) : take();
    __asm__ volatile("");
    return stack;
}

static void the_same_each_time(void **state)
{
    (void)state;
    struct stack stack[2][3];
    for (volatile int turn = 0; turn < 2; turn++) /* volatile: one call, and not one for each turn */
        for (volatile int deep = 0; deep < 3; deep++) {
            int before = unwound;
            stack[turn][deep] = deeper(deep * 4);
#ifdef __x86_64__
            assert_true(turn == 0 || unwound == before); /* the second time all is known */
#else
            (void)before;
#endif
        }
    for (int deep = 0; deep < 3; deep++) {
        assert_true(stack[0][deep].count > 2);
        assert_memory_equal(&stack[0][deep].count, &stack[1][deep].count, sizeof(unsigned));
        assert_memory_equal(stack[0][deep].frame, stack[1][deep].frame, stack[0][deep].count * sizeof(struct sg_frame));
    }
    assert_int_equal(stack[0][2].count, 16);
}

/* However deep, the outermost frames are those of a shallow stack, and what is between is left out. */
static void keeps_the_outermost(void **state)
{
    (void)state;
    struct sg_frame whole[64];
    unsigned count = sg_unwind_frames(&unwinder, &seen, whole, 64, OUTSIDE), most = 0;
    assert_in_range(count, OUTSIDE, 63);
    for (volatile int turn = 0; turn < 2; turn++)
        for (volatile int deep = 1; deep < 200; deep++) {
            struct stack stack = deeper(deep);
            unsigned left_out = 0;
            for (unsigned i = 0; i < stack.count; i++)
                left_out += sg_frame_is_gap(&stack.frame[i]);
            assert_int_equal(left_out, count + (unsigned)deep + 2 > KEPT); /* deeper() to 0, and take() */
            assert_memory_equal(stack.frame + stack.count - OUTSIDE + 1, whole + count - OUTSIDE + 1,
                (OUTSIDE - 1) * sizeof *whole);
            most = stack.count > most ? stack.count : most;
        }
    assert_int_equal(most, KEPT);
}

static void calls_on_two_lines_differ(void **state)
{
    (void)state;
    struct stack one = take();
    struct stack other = take();
    assert_int_equal(one.count, other.count);
    assert_true(memcmp(one.frame, other.frame, one.count * sizeof *one.frame) != 0);
}

/* A frame that is as large as it is asked to be. */
static __attribute__((noinline)) struct stack roomy(size_t bytes)
{
    volatile char *room = __builtin_alloca(bytes);
    room[0] = room[bytes - 1] = 1;
    struct stack stack = take();
    __asm__ volatile("");
    return stack;
}

static ucontext_t program, coroutine;
static struct stack met[2];

static void run_coroutine(void)
{
    for (volatile int turn = 0; turn < 2; turn++)
        met[turn] = roomy(64);
    for (volatile int i = 0; i < 4; i++) /* one of no fixed size is unwound each time */
        (void)roomy(64 + 512 * (size_t)i);
}

/* The size of a frame on one stack leads beyond the end of another, smaller one. */
static void a_small_stack_beside_a_large_one(void **state)
{
    enum { STACK = 64 << 10, LARGE = 256 << 10 };
    (void)state;
    roomy(LARGE);
    char *small = mmap(NULL, STACK + 2 * LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(small, MAP_FAILED);
    assert_int_equal(mprotect(small, STACK, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(getcontext(&coroutine), 0);
    coroutine.uc_stack.ss_sp = small;
    coroutine.uc_stack.ss_size = STACK;
    coroutine.uc_link = &program;
    makecontext(&coroutine, run_coroutine, 0);
    assert_int_equal(swapcontext(&program, &coroutine), 0);
    assert_true(met[0].count > 2 && met[0].count == met[1].count);
    assert_memory_equal(met[0].frame, met[1].frame, met[0].count * sizeof(struct sg_frame));
    assert_int_equal(munmap(small, STACK + 2 * LARGE), 0);
}

/* One frame that is reached by two ways is of one size all the same. */
static __attribute__((noinline)) struct stack by_another_way(int left)
{
    struct stack stack = deeper(left);
    __asm__ volatile("");
    return stack;
}

static void what_is_known_stays_known(void **state)
{
    (void)state;
    int known = 0;
    for (volatile int turn = 0; turn < 4; turn++) {
        (void)by_another_way(1);
        (void)deeper(1);
        known = turn == 0 ? unwound : known;
    }
#ifdef __x86_64__
    assert_int_equal(unwound, known);
#else
    (void)known;
#endif
}

static struct stack none;

static void take_without(const char *name)
{
    int status;
    lacks = name;
    pid_t child = fork();
    if (child == 0) {
        none = take();
        lacks = NULL;
        _exit(none.count != 0 || take().count != 0); /* it is looked for once */
    }
    lacks = NULL;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void nothing_without_the_runtime(void **state)
{
    (void)state;
    take_without("_Unwind_Backtrace");
    take_without("_Unwind_GetIP");
    take_without("_Unwind_GetCFA");
}

static void names_what_is_exported(void **state)
{
    (void)state;
    char module[256], function[256];
    uint32_t offset;
    void *address = dlsym(RTLD_DEFAULT, "strtoul");
    assert_true(sg_unwind_describe((uint64_t)(uintptr_t)address + 5, module, function, sizeof module, &offset));
    assert_non_null(strstr(module, "libc.so"));
    assert_true(offset > 0 && strstr(function, "strtou"));
    assert_false(sg_unwind_describe(4096, module, function, sizeof module, &offset));
    assert_true(sg_unwind_describe((uint64_t)(uintptr_t)&take, module, function, 8, &offset));
    assert_true(strlen(module) < 8); /* of the program itself, cut */
    for (size_t room = 1; room < 8; room++) { /* and of another one */
        memset(module, '?', sizeof module);
        memset(function, '?', sizeof function);
        assert_true(sg_unwind_describe((uint64_t)(uintptr_t)address + 5, module, function, room, &offset));
        assert_true(strlen(module) == room - 1 && module[room] == '?');
        assert_true(strlen(function) < room && function[room] == '?');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_the_runtime),
        cmocka_unit_test(the_same_each_time),
        cmocka_unit_test(what_is_known_stays_known),
        cmocka_unit_test(keeps_the_outermost),
        cmocka_unit_test(calls_on_two_lines_differ),
        cmocka_unit_test(a_small_stack_beside_a_large_one),
        cmocka_unit_test(names_what_is_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
