/* The ordered set of ranges against a map of pages. */
#include <stdlib.h>

#include "range.h"
#include "sim_test.h"

enum { PAGES = 600 };

static struct sim_range *owner[PAGES]; /* of each page; NULL: nobody */

static void compare(const struct sim_ranges *set, unsigned at, unsigned size)
{
    struct sim_range *next = NULL, *fit = NULL;
    bool overlap = false;
    for (unsigned i = at; i < PAGES && !next; i++)
        next = owner[i];
    for (unsigned i = 0; i < PAGES && !fit; i++)
        fit = owner[i] && owner[i]->size >= size ? owner[i] : NULL;
    for (unsigned i = at; i < at + size; i++)
        overlap |= owner[i] != NULL;
    struct sim_range *before = at ? owner[at - 1] : NULL;
    assert_ptr_equal(sim_ranges_at_or_after(set, at), next);
    assert_ptr_equal(sim_ranges_find(set, at), owner[at]);
    assert_ptr_equal(sim_ranges_first_fit(set, size), fit);
    assert_ptr_equal(sim_ranges_ending_at(set, at), before && before->base + before->size == at ? before : NULL);
    assert_int_equal(sim_ranges_overlap(set, at, size), overlap);
}

static void at_random(void **state)
{
    (void)state;
    struct sim_ranges set = {0};
    unsigned seed = 3, held = 0, most = 0;
    for (unsigned step = 0; step < 40000; step++) {
        unsigned size = 1 + (unsigned)rand_r(&seed) % 8, at = (unsigned)rand_r(&seed) % (PAGES - size);
        compare(&set, at, size);
        if (owner[at]) {
            struct sim_range *range = owner[at];
            sim_ranges_remove(&set, range);
            memset(&owner[range->base], 0, range->size * sizeof *owner);
            free(range);
            held--;
        } else if (!sim_ranges_overlap(&set, at, size)) {
            struct sim_range *range = calloc(1, sizeof *range);
            range->base = at;
            range->size = size;
            sim_ranges_insert(&set, range);
            for (unsigned i = at; i < at + size; i++)
                owner[i] = range;
            held++;
        }
        most = held > most ? held : most;
    }
    assert_true(most > 50);
    while (set.root) {
        struct sim_range *range = set.root;
        sim_ranges_remove(&set, range);
        free(range);
        held--;
    }
    assert_int_equal(held, 0);
}

/* Its depth must stay logarithmic where addresses come in order. */
static unsigned depth(const struct sim_range *range)
{
    if (!range)
        return 0;
    unsigned left = depth(range->left), right = depth(range->right);
    return 1 + (left > right ? left : right);
}

static void in_order(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    struct sim_ranges set = {0};
    struct sim_range *ranges = calloc(COUNT, sizeof *ranges);
    for (unsigned i = 0; i < COUNT; i++) {
        ranges[i].base = (uint64_t)i * PAGE;
        ranges[i].size = PAGE;
        sim_ranges_insert(&set, &ranges[i]);
    }
    assert_true(depth(set.root) < 64);
    free(ranges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(at_random), cmocka_unit_test(in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
