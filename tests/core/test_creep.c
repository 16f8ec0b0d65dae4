/* Sizes that creep are rounded up; sizes that repeat, jump or shrink are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "creep.h"

/* One buffer that is grown `steps` times by `by` units, old and new alive together. Returns the size it has at last. */
static uint32_t grow(struct sg_creep *creep, uint32_t units, uint32_t by, int steps, uint32_t *ret_asked)
{
    uint32_t got = sg_creep_allocate(creep, units);
    for (int i = 0; i < steps; i++) {
        uint32_t old = units;
        units += by;
        got = sg_creep_allocate(creep, units);
        sg_creep_free(creep, old);
    }
    *ret_asked = units;
    return got;
}

static void test_growing(void **state)
{
    struct sg_creep creep = {0};
    uint32_t asked, got = grow(&creep, 4096, 4, 30, &asked);
    (void)state;
    assert_true(got > asked);
    assert_true(got - asked <= asked / SG_CREEP_STEPS);
    assert_int_equal(got % (4096 / SG_CREEP_STEPS), 0);
}

static void test_repeating(void **state)
{
    struct sg_creep creep = {0};
    uint32_t asked;
    (void)state;
    grow(&creep, 4096, 4, 20, &asked);
    for (int i = 0; i < 2 * SG_CREEP_MOST; i++) {
        sg_creep_allocate(&creep, 4181);
        sg_creep_free(&creep, 4181);
    }
    assert_int_equal(sg_creep_allocate(&creep, 4181), 4181);
}

static void test_not_creeping(void **state)
{
    struct sg_creep creep = {0};
    uint32_t asked;
    (void)state;
    for (uint32_t units = 4096; units < 100000; units += units / 10) { /* too far apart */
        assert_int_equal(sg_creep_allocate(&creep, units + units / 10), units + units / 10);
        sg_creep_free(&creep, units);
    }
    for (uint32_t units = 9000; units > 8600; units -= 4) { /* shrinks */
        assert_int_equal(sg_creep_allocate(&creep, units), units);
        sg_creep_free(&creep, units + 4);
    }
    uint32_t got = grow(&creep, 16, 1, 90, &asked);
    assert_int_equal(got, asked); /* too small to matter */
}

static void test_widest(void **state)
{
    struct sg_creep creep = {0};
    (void)state;
    assert_true(sg_creep_class(INT32_MAX) < SG_CREEP_CLASSES);
    assert_int_equal(sg_creep_allocate(&creep, INT32_MAX), INT32_MAX);
    sg_creep_free(&creep, INT32_MAX);
    sg_creep_free(&creep, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_repeating),
        cmocka_unit_test(test_not_creeping),
        cmocka_unit_test(test_widest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
