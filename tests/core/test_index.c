/* The index against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "space/max_tree.h"
#include "random.h"

static uint32_t naive_first(const int32_t *sizes, uint32_t slots, uint32_t from, int32_t size)
{
    for (uint32_t slot = from; slot < slots; slot++)
        if (sizes[slot] >= size)
            return slot;
    return SG_INDEX_NONE;
}

static uint32_t naive_last(const int32_t *sizes, uint32_t slots, uint32_t before, int32_t size)
{
    for (uint32_t slot = before < slots ? before : slots; slot-- > 0;)
        if (sizes[slot] >= size)
            return slot;
    return SG_INDEX_NONE;
}

/* Each slot has its bit among those that say which maxima are behind. */
static void expect_room_for_bits(const struct sg_index *index, uint32_t slots)
{
    const char *end = (const char *)index->memory + index->bytes;
    if (index->behind)
        assert_true((const char *)&index->behind->groups[(slots - 1) / SG_INDEX_FANOUT / 64 + 1] <= end);
}

static void compare(const struct sg_index *index, const int32_t *sizes, uint32_t slots, uint32_t at, int32_t size)
{
    assert_int_equal(sg_index_first(index, at, size), naive_first(sizes, slots, at, size));
    assert_int_equal(sg_index_last(index, at, size), naive_last(sizes, slots, at, size));
}

static void run(uint32_t slots, unsigned steps, int32_t largest, enum sg_index_kind kind)
{
    struct random random = {slots};
    struct sg_index index;
    int32_t *sizes = calloc(slots, sizeof *sizes);
    assert_non_null(sizes);
    assert_true(sg_index_init(&index, slots, kind));
    expect_room_for_bits(&index, slots);
    compare(&index, sizes, slots, 0, 1);
    compare(&index, sizes, slots, slots, 1);
    for (unsigned step = 0; step < steps; step++) {
        uint32_t slot = (uint32_t)random_below(&random, slots);
        int32_t size = random_below(&random, 2) ? (int32_t)random_between(&random, 1, (uint64_t)largest) : 0;
        sg_index_set(&index, slot, size);
        sizes[slot] = size;
        assert_int_equal(sg_index_get(&index, slot), size);
        if (random_below(&random, 3) == 0) { /* what starts here starts elsewhere now, mostly nearby */
            uint32_t to = (uint32_t)random_below(&random, 4) ? slot - slot % 16 + (uint32_t)random_below(&random, 16)
                                                             : (uint32_t)random_below(&random, slots);
            to = to < slots ? to : slots - 1;
            size = (int32_t)random_below(&random, (uint64_t)largest + 1);
            sg_index_move(&index, slot, to, size);
            sizes[slot] = 0;
            sizes[to] = size;
        }
        if (kind == SG_INDEX_LATE && random_below(&random, 4)) /* several are set between two looks */
            continue;
        compare(&index, sizes, slots, (uint32_t)random_below(&random, slots + 1),
            (int32_t)random_between(&random, 1, (uint64_t)largest));
        compare(&index, sizes, slots, 0, 1);
        compare(&index, sizes, slots, slots, (int32_t)random_between(&random, 1, (uint64_t)largest));
        assert_int_equal(sg_index_last(&index, UINT32_MAX, 1), naive_last(sizes, slots, slots, 1));
    }
    int32_t most = 0;
    for (uint32_t slot = 0; slot < slots; slot++)
        most = sizes[slot] > most ? sizes[slot] : most;
    assert_int_equal(sg_index_largest(&index), most);
    free(sizes);
    sg_index_fini(&index);
}

static void test_every_width(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 300; slots++)
        for (enum sg_index_kind kind = SG_INDEX_EAGER; kind <= SG_INDEX_LATE; kind++)
            run(slots, kind == SG_INDEX_LATE ? 200 : 60, 40, kind);
}

/* Around powers of 16, where the tree gains a level, and where the root is full. */
static void test_wide(void **state)
{
    (void)state;
    static const uint32_t widths[] = {511, 512, 513, 1000, 2047, 4095, 4096, 4097, 5000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (enum sg_index_kind kind = SG_INDEX_EAGER; kind <= SG_INDEX_LATE; kind++)
            run(widths[i], 1500, 1000, kind);
}

/* One slot that fits must be found from everywhere, whatever stands around it. */
static void test_only_one(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct sg_index index;
        assert_true(sg_index_init(&index, widths[i], SG_INDEX_EAGER));
        for (uint32_t slot = 0; slot < widths[i]; slot += 1 + widths[i] / 50) {
            sg_index_set(&index, slot, INT32_MAX);
            for (uint32_t at = 0; at <= widths[i]; at += 1 + widths[i] / 100) {
                assert_int_equal(sg_index_first(&index, at, INT32_MAX), at <= slot ? slot : SG_INDEX_NONE);
                assert_int_equal(sg_index_last(&index, at, INT32_MAX), slot < at ? slot : SG_INDEX_NONE);
            }
            sg_index_set(&index, slot, 0);
            assert_int_equal(sg_index_largest(&index), 0);
        }
        sg_index_fini(&index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_only_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
