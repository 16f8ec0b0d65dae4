/* The index against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "max_tree.h"
#include "random.h"

static uint32_t naive_first(const int32_t *sizes, uint32_t buckets, uint32_t from, int32_t size)
{
    for (uint32_t bucket = from; bucket < buckets; bucket++)
        if (sizes[bucket] >= size)
            return bucket;
    return SG_MAX_TREE_NONE;
}

static uint32_t naive_last(const int32_t *sizes, uint32_t buckets, uint32_t before, int32_t size)
{
    for (uint32_t bucket = before < buckets ? before : buckets; bucket-- > 0;)
        if (sizes[bucket] >= size)
            return bucket;
    return SG_MAX_TREE_NONE;
}

/* Each slot has its bit among those that say which maxima are behind. */
static void expect_room_for_bits(const struct sg_max_tree *index, uint32_t buckets)
{
    const char *end = (const char *)index->memory + index->bytes;
    if (index->behind)
        assert_true((const char *)&index->behind->groups[(buckets - 1) / SG_MAX_TREE_FANOUT / 64 + 1] <= end);
}

static void compare(const struct sg_max_tree *index, const int32_t *sizes, uint32_t buckets, uint32_t at, int32_t size)
{
    assert_int_equal(sg_max_tree_first(index, at, size), naive_first(sizes, buckets, at, size));
    assert_int_equal(sg_max_tree_last(index, at, size), naive_last(sizes, buckets, at, size));
}

static void run(uint32_t buckets, unsigned steps, int32_t largest, enum sg_max_tree_kind kind)
{
    struct random random = {buckets};
    struct sg_max_tree index;
    int32_t *sizes = calloc(buckets, sizeof *sizes);
    assert_non_null(sizes);
    assert_true(sg_max_tree_init(&index, buckets, kind));
    expect_room_for_bits(&index, buckets);
    compare(&index, sizes, buckets, 0, 1);
    compare(&index, sizes, buckets, buckets, 1);
    for (unsigned step = 0; step < steps; step++) {
        uint32_t bucket = (uint32_t)random_below(&random, buckets);
        int32_t size = random_below(&random, 2) ? (int32_t)random_between(&random, 1, (uint64_t)largest) : 0;
        sg_max_tree_set(&index, bucket, size);
        sizes[bucket] = size;
        assert_int_equal(sg_max_tree_get(&index, bucket), size);
        if (random_below(&random, 3) == 0) { /* what starts here starts elsewhere now, mostly nearby */
            uint32_t to = (uint32_t)random_below(&random, 4) ? bucket - bucket % 16 +
                (uint32_t)random_below(&random, 16)
                                                             : (uint32_t)random_below(&random, buckets);
            to = to < buckets ? to : buckets - 1;
            size = (int32_t)random_below(&random, (uint64_t)largest + 1);
            sg_max_tree_move(&index, bucket, to, size);
            sizes[bucket] = 0;
            sizes[to] = size;
        }
        if (kind == SG_MAX_TREE_LATE && random_below(&random, 4)) /* several are set between two looks */
            continue;
        compare(&index, sizes, buckets, (uint32_t)random_below(&random, buckets + 1),
            (int32_t)random_between(&random, 1, (uint64_t)largest));
        compare(&index, sizes, buckets, 0, 1);
        compare(&index, sizes, buckets, buckets, (int32_t)random_between(&random, 1, (uint64_t)largest));
        assert_int_equal(sg_max_tree_last(&index, UINT32_MAX, 1), naive_last(sizes, buckets, buckets, 1));
    }
    int32_t most = 0;
    for (uint32_t bucket = 0; bucket < buckets; bucket++)
        most = sizes[bucket] > most ? sizes[bucket] : most;
    assert_int_equal(sg_max_tree_largest(&index), most);
    free(sizes);
    sg_max_tree_fini(&index);
}

static void test_every_width(void **state)
{
    (void)state;
    for (uint32_t buckets = 1; buckets <= 300; buckets++)
        for (enum sg_max_tree_kind kind = SG_MAX_TREE_EAGER; kind <= SG_MAX_TREE_LATE; kind++)
            run(buckets, kind == SG_MAX_TREE_LATE ? 200 : 60, 40, kind);
}

/* Around powers of 16, where the tree gains a level, and where the root is full. */
static void trees_around_a_new_level_find_the_largest(void **state)
{
    (void)state;
    static const uint32_t widths[] = {511, 512, 513, 1000, 2047, 4095, 4096, 4097, 5000};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (enum sg_max_tree_kind kind = SG_MAX_TREE_EAGER; kind <= SG_MAX_TREE_LATE; kind++)
            run(widths[i], 1500, 1000, kind);
}

/* One slot that fits must be found from everywhere, whatever stands around it. */
static void test_only_one(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct sg_max_tree index;
        assert_true(sg_max_tree_init(&index, widths[i], SG_MAX_TREE_EAGER));
        for (uint32_t bucket = 0; bucket < widths[i]; bucket += 1 + widths[i] / 50) {
            sg_max_tree_set(&index, bucket, INT32_MAX);
            for (uint32_t at = 0; at <= widths[i]; at += 1 + widths[i] / 100) {
                assert_int_equal(sg_max_tree_first(&index, at, INT32_MAX), at <= bucket ? bucket : SG_MAX_TREE_NONE);
                assert_int_equal(sg_max_tree_last(&index, at, INT32_MAX), bucket < at ? bucket : SG_MAX_TREE_NONE);
            }
            sg_max_tree_set(&index, bucket, 0);
            assert_int_equal(sg_max_tree_largest(&index), 0);
        }
        sg_max_tree_fini(&index);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_width),
        cmocka_unit_test(trees_around_a_new_level_find_the_largest),
        cmocka_unit_test(test_only_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
