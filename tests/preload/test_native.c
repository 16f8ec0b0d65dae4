/* Stacks of code: by the unwinder the first time, by what was learnt of frames afterwards, and the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <string.h>

#include <cmocka.h>

#include "native.h"
#include "resolve.h"

/* What is in the library itself is left out: here all is, so the bounds of that are elsewhere (-D in the build). */
const char elsewhere_start[1], elsewhere_end[1];

sg_dlsym_fn *sg_dlsym(void)
{
    return dlsym;
}

static struct sg_native native;
static uintptr_t top;

struct stack {
    uint64_t address[16];
    unsigned count;
};

static __attribute__((noinline)) struct stack take(void)
{
    struct stack stack = {.count = 0};
    stack.count = sg_native_frames(&native, &top, stack.address, 16);
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
        for (volatile int deep = 0; deep < 3; deep++)
            stack[turn][deep] = deeper(deep * 4);
    for (int deep = 0; deep < 3; deep++) {
        assert_true(stack[0][deep].count > 2);
        assert_memory_equal(&stack[0][deep].count, &stack[1][deep].count, sizeof(unsigned));
        assert_memory_equal(stack[0][deep].address, stack[1][deep].address, stack[0][deep].count * sizeof(uint64_t));
    }
    assert_int_equal(stack[0][2].count, 16);
}

static void calls_on_two_lines_differ(void **state)
{
    (void)state;
    struct stack one = take();
    struct stack other = take();
    assert_int_equal(one.count, other.count);
    assert_true(memcmp(one.address, other.address, one.count * sizeof *one.address) != 0);
}

static void names_what_is_exported(void **state)
{
    (void)state;
    char module[256], function[256];
    uint32_t offset;
    void *address = dlsym(RTLD_DEFAULT, "strtoul");
    assert_true(sg_native_describe((uint64_t)(uintptr_t)address + 5, module, function, sizeof module, &offset));
    assert_non_null(strstr(module, "libc.so"));
    assert_true(offset > 0 && strstr(function, "strtou"));
    assert_false(sg_native_describe(4096, module, function, sizeof module, &offset));
    assert_true(sg_native_describe((uint64_t)(uintptr_t)&take, module, function, 8, &offset));
    assert_true(strlen(module) < 8); /* of the program itself, cut */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_each_time),
        cmocka_unit_test(calls_on_two_lines_differ),
        cmocka_unit_test(names_what_is_exported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
