/* Groups of live blocks: what is told of them is what is alive, and what was kept stays as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "live_groups.h"

static struct sg_live live;

static uint32_t add(uint64_t stream, uint32_t site, uint64_t bytes)
{
    const struct sg_live_key key = {.stream = stream, .site = site, .size_class = sg_live_class(bytes)};
    return sg_live_add(&live, &key, bytes);
}

static void largest_come_first(void **state)
{
    (void)state;
    struct sg_live_row row[8];
    assert_true(sg_live_init(&live, 16));
    add(1, 0, 100);
    add(2, 0, 100);
    add(1, 7, 5000);
    add(1, 0, 120);
    assert_int_equal(sg_live_rows(&live, false, NULL, row, 8), 3);
    assert_int_equal(row[0].bytes, 5000);
    assert_int_equal(row[0].key.site, 7);
    assert_int_equal(row[0].age, 1);
    assert_int_equal(row[1].bytes, 220);
    assert_int_equal(row[1].blocks, 2);
    assert_int_equal(row[1].age, 4 - (1 + 4) / 2);
    assert_int_equal(sg_live_class_from(row[1].key.size_class), 64);
    assert_int_equal(sg_live_rows(&live, false, NULL, row, 1), 3); /* the first of three */
    assert_int_equal(row[0].bytes, 5000);
    const struct sg_live_key by_site = {.site = UINT32_MAX};
    assert_int_equal(sg_live_rows(&live, false, &by_site, row, 8), 2);
    assert_int_equal(row[1].bytes, 320);
    assert_int_equal(row[1].blocks, 3);
    assert_int_equal(row[1].key.size_class, 0);
    sg_live_fini(&live);
}

static void what_was_kept_stays(void **state)
{
    (void)state;
    struct sg_live_row row[8];
    assert_true(sg_live_init(&live, 16));
    uint32_t large = add(1, 0, 4096), small = add(1, 0, 16);
    assert_int_equal(sg_live_rows(&live, true, NULL, row, 8), 0);
    sg_live_keep(&live);
    sg_live_remove(&live, large, 4096, 1);
    add(2, 0, 1 << 20);
    assert_int_equal(sg_live_rows(&live, true, NULL, row, 8), 2);
    assert_int_equal(row[0].bytes, 4096);
    assert_int_equal(row[0].age, 1);
    assert_int_equal(row[1].bytes, 16);
    assert_int_equal(sg_live_rows(&live, false, NULL, row, 8), 2);
    assert_int_equal(row[0].bytes, 1 << 20);
    sg_live_remove(&live, small, 16, 2);
    sg_live_keep(&live);
    assert_int_equal(sg_live_rows(&live, true, NULL, row, 8), 1);
    sg_live_fini(&live);
}

/* What finds no group of its own is told in one without a name. */
static void all_is_counted_where_groups_run_out(void **state)
{
    (void)state;
    enum { MOST = 4, BLOCKS = 20 };
    struct sg_live_row row[BLOCKS];
    uint32_t group[BLOCKS];
    assert_true(sg_live_init(&live, MOST));
    for (uint32_t i = 0; i < BLOCKS; i++)
        group[i] = add(i + 1, 0, 10);
    assert_int_equal(sg_live_rows(&live, false, NULL, row, BLOCKS), MOST);
    assert_int_equal(row[0].key.stream, 0);
    assert_int_equal(row[0].blocks, BLOCKS - MOST + 1);
    for (uint32_t i = 0; i < BLOCKS; i++)
        sg_live_remove(&live, group[i], 10, i + 1);
    assert_int_equal(sg_live_rows(&live, false, NULL, row, BLOCKS), 0);
    sg_live_fini(&live);
    sg_live_fini(&live);
}

/* Against a plain list. */
static void random_blocks_add_up(void **state)
{
    (void)state;
    enum { BLOCKS = 500, STEPS = 20000 };
    struct { uint64_t bytes, birth; uint32_t group; } block[BLOCKS] = {0};
    struct sg_live_row row[256];
    srand(1);
    assert_true(sg_live_init(&live, 64));
    for (int step = 0; step < STEPS; step++) {
        int at = rand() % BLOCKS;
        if (block[at].bytes) {
            sg_live_remove(&live, block[at].group, block[at].bytes, block[at].birth);
            block[at].bytes = 0;
        } else {
            block[at].bytes = 1 + (uint64_t)(rand() % 100000);
            block[at].group = add((uint64_t)(rand() % 5), (uint32_t)(rand() % 5), block[at].bytes);
            block[at].birth = live.allocs;
        }
        if (step % 1000)
            continue;
        uint64_t bytes = 0, told = 0;
        for (int i = 0; i < BLOCKS; i++)
            bytes += block[i].bytes;
        sg_live_keep(&live);
        uint32_t rows = sg_live_rows(&live, step % 2, NULL, row, 256);
        for (uint32_t i = 0; i < rows; i++) {
            told += row[i].bytes;
            assert_true(!i || row[i].bytes <= row[i - 1].bytes);
        }
        assert_int_equal(told, bytes);
    }
    sg_live_fini(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_come_first),
        cmocka_unit_test(what_was_kept_stays),
        cmocka_unit_test(all_is_counted_where_groups_run_out),
        cmocka_unit_test(random_blocks_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
