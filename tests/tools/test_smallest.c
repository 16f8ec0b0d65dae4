/* The smallest card, and a larger one that fails, of programs whose answer is known for every card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "replay/smallest_card.h"

enum { CARD = 1000, HOLES = 2 };

/* Device 0 fits from CARD MiB on, but for the cards of these bounds, in MiB. */
static uint64_t hole[HOLES][2];

static int play(void *user, const uint64_t card[SG_DEVICES_MAX], uint64_t stop, struct sg_play_result *ret)
{
    uint64_t mib = card[0] / SG_MIB;
    bool fits = mib >= CARD;
    (void)stop;
    ++*(unsigned *)user;
    for (int i = 0; i < HOLES; i++)
        fits = fits && !(mib >= hole[i][0] && mib <= hole[i][1]);
    memset(ret, 0, sizeof *ret);
    ret->device[0].used = true;
    ret->device[0].ooms = !fits;
    return 0;
}

static struct sg_smallest find(void)
{
    static struct sg_play_result known;
    unsigned plays = 0;
    known.device[0].used = true;
    known.device[0].stats.peak[SG_STAT_requested_bytes] = 990 * SG_MIB;
    struct sg_smallest smallest = {.play = play, .user = &plays, .most = SG_SMALLEST_MOST};
    assert_int_equal(sg_smallest_find(&smallest, &known), 0);
    assert_int_equal(smallest.card[0], CARD * SG_MIB);
    assert_int_equal(smallest.failing[0], 0);
    assert_int_equal(sg_smallest_look_above(&smallest), 0);
    assert_int_equal(smallest.card[1] + smallest.failing[1], 0);
    return smallest;
}

static void no_larger_card_fails(void **state)
{
    (void)state;
    memset(hole, 0, sizeof hole);
    assert_int_equal(find().failing[0], 0);
}

static void largest_failing_card_is_told(void **state)
{
    (void)state;
    hole[0][0] = 1018, hole[0][1] = 1022;
    assert_in_range(find().failing[0], 1018 * SG_MIB, 1022 * SG_MIB);
    hole[1][0] = 1040, hole[1][1] = 1060;
    assert_in_range(find().failing[0], 1040 * SG_MIB, 1060 * SG_MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_larger_card_fails),
        cmocka_unit_test(largest_failing_card_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
