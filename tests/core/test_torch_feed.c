#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "size.h"
#include "torch_card.h"
#include "torch_feed.h"

static const uint8_t A = SEGALLOC_RECORD_ALLOCATE, F = SEGALLOC_RECORD_FREE, R = SEGALLOC_RECORD_RECORD_STREAM,
                     E = SEGALLOC_RECORD_EMPTY_CACHE, L = SEGALLOC_RECORD_LAUNCH;

struct bench {
    struct sg_torch_card card;
    struct sg_torch *torch;
    struct sg_torch_feed *feed;
    const struct sg_torch_stats *stats;
};

static void set_up(struct bench *bench, uint64_t capacity)
{
    struct sg_torch_conf conf;
    sg_torch_conf_init(&conf);
    sg_torch_card_init(&bench->card, capacity);
    bench->torch = sg_torch_create(&conf, capacity, &sg_torch_card_ops, &bench->card);
    bench->feed = sg_torch_feed_create(bench->torch);
    bench->stats = sg_torch_stats(bench->torch);
    assert_non_null(bench->feed);
}

static void tear_down(struct bench *bench)
{
    sg_torch_feed_destroy(bench->feed);
    sg_torch_destroy(bench->torch);
    sg_torch_card_clear(&bench->card);
}

static void records(void **state)
{
    (void)state;
    const struct segalloc_trace_record trace[] = {
        {.kind = SEGALLOC_RECORD_DEFINE_STREAM, .stream = 1},
        {.kind = A, .id = 0x200, .size = 30 * SG_MIB, .stream = 1},
        {.kind = R, .id = 0x200, .stream = 2},
        {.kind = R, .id = 0x999, .stream = 2},  /* nobody's */
        {.kind = L, .size = 3, .stream = 1},
        {.kind = F, .id = 0x200, .size = 30 * SG_MIB, .stream = 1},
        {.kind = F, .id = 0x200},               /* not alive any more */
        {.kind = A, .id = 0x200, .size = 12 * SG_MIB, .stream = 1}, /* out of the 30 */
        {.kind = A, .id = 0x400, .size = 0},
        {.kind = F, .id = 0x400},
        {.kind = A, .id = 0x400, .size = 40 * SG_MIB, .stream = 2},
        {.kind = F, .id = 0x400},
        {.kind = E},
    };
    struct bench bench;
    size_t done;
    set_up(&bench, SG_GIB);
    assert_int_equal(sg_torch_feed(bench.feed, trace, sizeof trace / sizeof *trace, &done), 0);
    assert_int_equal(done, sizeof trace / sizeof *trace);
    assert_int_equal(bench.stats->allocs, 3);
    assert_int_equal(bench.stats->frees, 2);
    assert_int_equal(bench.stats->reserved.peak, 70 * SG_MIB);
    assert_int_equal(bench.stats->reserved.current, 30 * SG_MIB);
    assert_int_equal(bench.stats->requested.current, 12 * SG_MIB);
    tear_down(&bench);
}

static void failures(void **state)
{
    (void)state;
    const struct segalloc_trace_record trace[] = {
        {.kind = A, .id = 1, .size = 30 * SG_MIB},
        {.kind = A, .id = 1, .size = 10 * SG_MIB},
        {.kind = A, .id = 2, .size = 80 * SG_MIB},
        {.kind = F, .id = 2},
        {.kind = A, .id = 2, .size = 20 * SG_MIB},
    };
    struct bench bench;
    size_t done;
    set_up(&bench, 100 * SG_MIB);
    assert_int_equal(sg_torch_feed(bench.feed, trace, 5, &done), -EEXIST);
    assert_int_equal(done, 1);
    assert_int_equal(sg_torch_feed(bench.feed, trace + 2, 3, &done), -ENOMEM);
    assert_int_equal(done, 0);
    assert_int_equal(bench.stats->ooms, 1);
    assert_int_equal(sg_torch_feed(bench.feed, trace + 3, 2, &done), 0);
    assert_int_equal(done, 2);
    assert_int_equal(bench.stats->requested.current, 50 * SG_MIB);
    tear_down(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
