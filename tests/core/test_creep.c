/* Sizes that creep are rounded up; sizes that repeat, jump or shrink are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "creep.h"
#include "crowd.h"

static uint32_t allocate(struct sg_creep *creep, uint32_t units)
{
    return sg_creep_allocate(creep, sg_creep_class(units), units, /* round */ true);
}

static void release(struct sg_creep *creep, uint32_t units)
{
    sg_creep_free(creep, sg_creep_class(units), units);
}

/* One buffer that is grown `steps` times by `by` units, old and new alive together. Returns the size it has at last. */
static uint32_t grow(struct sg_creep *creep, uint32_t units, uint32_t by, int steps, uint32_t *ret_asked)
{
    uint32_t got = allocate(creep, units);
    for (int i = 0; i < steps; i++) {
        uint32_t old = units;
        units += by;
        got = allocate(creep, units);
        release(creep, old);
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
    assert_int_equal(sg_creep_allocate(&creep, sg_creep_class(asked), asked, /* round */ false), asked);
}

static void test_repeating(void **state)
{
    struct sg_creep creep = {0};
    uint32_t asked;
    (void)state;
    grow(&creep, 4096, 4, 20, &asked);
    for (int i = 0; i < 2 * SG_CREEP_MOST; i++) {
        allocate(&creep, 4181);
        release(&creep, 4181);
    }
    assert_int_equal(allocate(&creep, 4181), 4181);
}

static void test_not_creeping(void **state)
{
    struct sg_creep creep = {0};
    uint32_t asked;
    (void)state;
    for (uint32_t units = 4096; units < 100000; units += units / 10) { /* too far apart */
        assert_int_equal(allocate(&creep, units + units / 10), units + units / 10);
        release(&creep, units);
    }
    for (uint32_t units = 9000; units > 8600; units -= 4) { /* shrinks */
        assert_int_equal(allocate(&creep, units), units);
        release(&creep, units + 4);
    }
    uint32_t got = grow(&creep, 16, 1, 90, &asked);
    assert_int_equal(got, asked); /* too small to matter */
}

static void test_widest(void **state)
{
    struct sg_creep creep = {0};
    (void)state;
    assert_true(sg_creep_class(INT32_MAX) < SG_CREEP_CLASSES);
    assert_int_equal(allocate(&creep, INT32_MAX), INT32_MAX);
    release(&creep, INT32_MAX);
    release(&creep, 1);
}

/* A size is a crowd's when enough of its blocks live and they are large enough together, none when a block alone is
   large. */
static void test_crowds(void **state)
{
    struct sg_crowd crowd = {0};
    uint32_t medium = (4 << 20) / 512, little = (128 << 10) / 512;
    (void)state;
    crowd.live[sg_creep_class(medium)] = SG_CROWD_LIVE - 1;
    assert_false(sg_crowd_has(&crowd, sg_creep_class(medium), medium));
    crowd.live[sg_creep_class(medium)]++;
    assert_true(sg_crowd_has(&crowd, sg_creep_class(medium), medium));
    crowd.live[sg_creep_class(little)] = SG_CROWD_TOGETHER / little - 1;
    assert_false(sg_crowd_has(&crowd, sg_creep_class(little), little));
    crowd.live[sg_creep_class(little)]++;
    assert_true(sg_crowd_has(&crowd, sg_creep_class(little), little));
    crowd.live[sg_creep_class(SG_CROWD_LARGEST + 1)] = 2 * SG_CROWD_LIVE;
    assert_true(sg_crowd_has(&crowd, sg_creep_class(SG_CROWD_LARGEST), SG_CROWD_LARGEST));
    assert_false(sg_crowd_has(&crowd, sg_creep_class(SG_CROWD_LARGEST + 1), SG_CROWD_LARGEST + 1));
    crowd.live[0] = 1 << 20;
    assert_false(sg_crowd_has(&crowd, 0, SG_CREEP_LEAST)); /* the small have no class */
}

/* Sizes that are alike share a lane with those twice as large; eight that aren't have one each. */
static void test_lanes(void **state)
{
    (void)state;
    uint32_t octave = 4096, used = 0;
    for (uint32_t part = 0; part < SG_CROWD_LANES; part++) {
        uint32_t units = octave + octave * part / SG_CROWD_LANES,
                 most = octave + octave * (part + 1) / SG_CROWD_LANES - 1;
        uint8_t lane = sg_crowd_lane(sg_creep_class(units));
        assert_in_range(lane, 0, SG_CROWD_LANES - 1);
        assert_int_equal(lane, sg_crowd_lane(sg_creep_class(most)));
        assert_int_equal(lane, sg_crowd_lane(sg_creep_class(2 * units)));
        used |= 1U << lane;
    }
    assert_int_equal(used, (1U << SG_CROWD_LANES) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_repeating),
        cmocka_unit_test(test_not_creeping),
        cmocka_unit_test(test_widest),
        cmocka_unit_test(test_crowds),
        cmocka_unit_test(test_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
