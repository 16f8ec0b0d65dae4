/* The dictionary against a plain list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "idmap.h"

enum { IDS = 3000 };

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* `step` between ids: 1 for slot numbers, a page for addresses, the inverse of the hash's factor so that all homes are one. */
static void run(uint64_t first, uint64_t step)
{
    struct sg_idmap map;
    uint64_t random = 88172645463325252u;
    uint64_t *model = calloc(IDS, sizeof *model);
    assert_non_null(model);
    assert_true(sg_idmap_init(&map));
    size_t count = 0;
    for (unsigned i = 0; i < 60000; i++) {
        size_t which = next(&random) % IDS;
        uint64_t id = first + which * step;
        /* Grows for a while, shrinks for a while, so that the table is enlarged and long runs are broken up. */
        if (next(&random) % 8 < (i / 10000 % 2 ? 3 : 5)) {
            uint64_t value = next(&random) | 1;
            assert_true(sg_idmap_put(&map, id, value));
            count += model[which] == 0;
            model[which] = value;
        } else {
            assert_int_equal(sg_idmap_take(&map, id), model[which]);
            count -= model[which] != 0;
            model[which] = 0;
        }
        size_t other = next(&random) % IDS;
        assert_int_equal(sg_idmap_get(&map, first + other * step), model[other]);
        assert_int_equal(map.count, count);
        if (i % 5000 == 0)
            for (size_t k = 0; k < IDS; k++)
                assert_int_equal(sg_idmap_get(&map, first + k * step), model[k]);
    }
    for (size_t k = 0; k < IDS; k++)
        assert_int_equal(sg_idmap_take(&map, first + k * step), model[k]);
    assert_int_equal(map.count, 0);
    free(model);
    sg_idmap_fini(&map);
}

static void small_ids_are_found_and_removed(void **state)
{
    (void)state;
    run(0, 1);
}

static void ids_that_are_addresses_are_found_and_removed(void **state)
{
    (void)state;
    run(UINT64_C(0x7f0000000000), UINT64_C(2) << 20);
}

static void ids_with_one_hash_are_found_and_removed(void **state)
{
    (void)state;
    run(0, UINT64_C(0xf1de83e19937733d));
}

/* Ids are spread whatever power of two they are multiples of: as of addresses that are a GiB apart. */
static void ids_are_spread_whatever_they_are_multiples_of(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift < 52; shift++) {
        struct sg_idmap map;
        size_t run = 0, longest = 0;
        assert_true(sg_idmap_init(&map));
        for (uint64_t i = 1; i <= IDS; i++)
            assert_true(sg_idmap_put(&map, i << shift, i));
        for (size_t i = 0; i <= map.mask; i++) {
            run = map.entry[i].value ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
        assert_true(longest < 64);
        sg_idmap_fini(&map);
    }
}

static void a_map_grows_and_loses_nothing(void **state)
{
    (void)state;
    struct sg_idmap map;
    assert_true(sg_idmap_init(&map));
    for (uint64_t id = 0; id < 100000; id++)
        assert_true(sg_idmap_put(&map, id * 512, id + 1));
    assert_true(map.mask >= 2 * map.count);
    for (uint64_t id = 0; id < 100000; id++)
        assert_int_equal(sg_idmap_get(&map, id * 512), id + 1);
    assert_int_equal(sg_idmap_get(&map, 511), 0);
    sg_idmap_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ids_are_found_and_removed),
        cmocka_unit_test(ids_that_are_addresses_are_found_and_removed),
        cmocka_unit_test(ids_with_one_hash_are_found_and_removed),
        cmocka_unit_test(ids_are_spread_whatever_they_are_multiples_of),
        cmocka_unit_test(a_map_grows_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
