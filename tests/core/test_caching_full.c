/* PyTorch's allocator over again on a full card: what is given back, in which order, and when it runs out. */
#include "caching_steps.h"

static void oversize_blocks_go_first_when_memory_ends(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "max_split_size_mb:100", 400 * SG_MIB);
    put(&bench, get(&bench, 300 * SG_MIB));
    struct sg_torch_block *kept = get(&bench, 50 * SG_MIB);
    put(&bench, get(&bench, 30 * SG_MIB));
    struct sg_torch_block *big = get(&bench, 200 * SG_MIB); /* one block is large enough: it goes, the 30 stay */
    assert_int_equal(bench.stats->reserved.current, 280 * SG_MIB);
    assert_int_equal(bench.stats->retries, 0);
    put(&bench, big);
    struct sg_torch_block *other = get(&bench, 110 * SG_MIB); /* 200 is too large for it, and there is room */
    put(&bench, other);
    big = get(&bench, 320 * SG_MIB); /* both are not enough: the rest goes too */
    assert_int_equal(bench.stats->reserved.current, 370 * SG_MIB);
    assert_int_equal(bench.stats->retries, 1);
    put(&bench, kept);
    put(&bench, big);
    tear_down(&bench);
}

static void as_many_oversize_blocks_go_as_are_enough(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "max_split_size_mb:100", 420 * SG_MIB);
    struct sg_torch_block *one = get(&bench, 120 * SG_MIB), *other = get(&bench, 130 * SG_MIB);
    put(&bench, one);
    put(&bench, other);
    put(&bench, get(&bench, 30 * SG_MIB));
    struct sg_torch_block *big = get(&bench, 240 * SG_MIB); /* both together: the 30 stay */
    assert_int_equal(bench.stats->reserved.current, 270 * SG_MIB);
    assert_int_equal(bench.stats->retries, 0);
    put(&bench, big);
    tear_down(&bench);
}

static void card_is_full_to_the_byte(void **state)
{
    (void)state;
    struct sg_ledger_device card;
    uint64_t address;
    sg_ledger_device_init(&card, 10 * SG_MIB);
    assert_int_equal(sg_ledger_device_ops.segment_alloc(&card, 10 * SG_MIB + 1, &address), -ENOMEM);
    assert_int_equal(card.peak, 0);
    assert_int_equal(sg_ledger_device_ops.segment_alloc(&card, 10 * SG_MIB, &address), 0);
    sg_ledger_device_ops.segment_free(&card, address, 10 * SG_MIB);
    assert_int_equal(card.peak, 10 * SG_MIB);
    assert_int_equal(card.used, 0);
    sg_ledger_device_clear(&card);
}

static void running_out(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", 100 * SG_MIB);
    struct sg_torch_block *a = get(&bench, 40 * SG_MIB), *b = get(&bench, 30 * SG_MIB), *c = get(&bench, 10 * SG_MIB);
    must_run_out(&bench, 22 * SG_MIB);
    assert_int_equal(bench.stats->ooms, 1);
    assert_int_equal(bench.stats->retries, 1);
    assert_int_equal(bench.stats->reserved.current, 80 * SG_MIB);
    must_run_out(&bench, UINT64_C(1) << 62);
    put(&bench, a);
    struct sg_torch_block *d = get(&bench, 22 * SG_MIB); /* out of the 40 */
    assert_int_equal(bench.stats->reserved.current, 80 * SG_MIB);
    put(&bench, b);
    put(&bench, c);
    put(&bench, d);
    tear_down(&bench);
}

static void flushes_the_cache_once(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", 100 * SG_MIB);
    put(&bench, get(&bench, 60 * SG_MIB));
    struct sg_torch_block *block = get(&bench, 80 * SG_MIB);
    assert_int_equal(bench.stats->retries, 1);
    assert_int_equal(bench.stats->segment_frees, 1);
    assert_int_equal(bench.stats->cache_syncs, 1);
    put(&bench, block);
    tear_down(&bench);
}

static void memory_fraction(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "per_process_memory_fraction:0.5", 200 * SG_MIB);
    struct sg_torch_block *block = get(&bench, 90 * SG_MIB);
    must_run_out(&bench, 12 * SG_MIB);
    struct sg_torch_block *fits = get(&bench, 10 * SG_MIB);
    put(&bench, block);
    put(&bench, fits);
    tear_down(&bench);
}

static void garbage_collection(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "per_process_memory_fraction:0.5,garbage_collection_threshold:0.6", 400 * SG_MIB);
    struct sg_torch_block *a = get(&bench, 50 * SG_MIB), *b = get(&bench, 40 * SG_MIB), *c = get(&bench, 40 * SG_MIB);
    put(&bench, a);                        /* the oldest */
    put(&bench, get(&bench, 60 * SG_MIB)); /* 130 are held and 120 the threshold: a goes first */
    assert_int_equal(bench.stats->segment_frees, 1);
    put(&bench, b);
    put(&bench, c);
    struct sg_torch_block *d = get(&bench, 45 * SG_MIB); /* out of the 60, which is split */
    assert_int_equal(bench.stats->segment_frees, 1);
    struct sg_torch_block *e = get(&bench, 50 * SG_MIB); /* 140 held: b and c go, which are as old as the average */
    assert_int_equal(bench.stats->segment_frees, 3);
    assert_int_equal(bench.stats->reserved.current, 110 * SG_MIB);
    assert_int_equal(bench.stats->retries, 0);
    put(&bench, d);
    put(&bench, e);
    tear_down(&bench);

    /* Without a fraction the threshold does nothing, however full the card. */
    set_up(&bench, "garbage_collection_threshold:0.1", 400 * SG_MIB);
    put(&bench, get(&bench, 100 * SG_MIB));
    put(&bench, get(&bench, 200 * SG_MIB));
    assert_int_equal(bench.stats->reserved.current, 300 * SG_MIB);
    tear_down(&bench);
}

/* How old a block is tell the requests for large ones since it was freed, whatever there was of small ones. */
static void garbage_is_as_old_as_its_pool(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "per_process_memory_fraction:0.5,garbage_collection_threshold:0.6", 400 * SG_MIB);
    struct sg_torch_block *a = get(&bench, 50 * SG_MIB), *b = get(&bench, 60 * SG_MIB), *c = get(&bench, 20 * SG_MIB);
    put(&bench, a);
    for (int i = 0; i < 5; i++) {
        put(&bench, c);
        c = get(&bench, 20 * SG_MIB);
    }
    put(&bench, b);
    for (int i = 0; i < 9; i++)
        put(&bench, get(&bench, 512));
    struct sg_torch_block *d = get(&bench, 64 * SG_MIB); /* 132 are held, and 120 the threshold */
    assert_int_equal(bench.stats->segment_frees, 1);
    assert_int_equal(bench.stats->reserved.current, 146 * SG_MIB); /* without a */
    put(&bench, c);
    put(&bench, d);
    tear_down(&bench);
}

static void expandable_map_fails_midway(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "expandable_segments:True", 50 * SG_MIB);
    struct sg_torch_block *a = get(&bench, 15 * SG_MIB);
    must_run_out(&bench, 41 * SG_MIB); /* one of two chunks is to be had */
    assert_int_equal(bench.card.used, 20 * SG_MIB);
    assert_int_equal(bench.card.calls[SG_TORCH_CREATE], 1 + 2 + 2); /* tried again after the flush */
    assert_int_equal(bench.card.calls[SG_TORCH_RELEASE], 2);
    struct sg_torch_block *b = get(&bench, 25 * SG_MIB);
    assert_int_equal(bench.stats->reserved.current, 40 * SG_MIB);
    put(&bench, a);
    put(&bench, b);
    tear_down(&bench);
}

/* A driver that is slow enough for somebody else to allocate and free meanwhile. */
struct busy {
    struct sg_ledger_device card;
    struct sg_torch *torch;
    struct sg_torch_block *theirs[600];
};

static int busy_alloc(void *user, uint64_t bytes, uint64_t *ret_address)
{
    struct busy *busy = user;
    if (bytes == 50 * SG_MIB) {
        for (size_t i = 0; i < 600; i++)
            assert_int_equal(sg_torch_alloc(busy->torch, 6 * SG_MIB, i & 1, &busy->theirs[i]), 0);
    }
    return sg_ledger_device_ops.segment_alloc(&busy->card, bytes, ret_address);
}

static void others_while_the_driver_works(void **state)
{
    (void)state;
    struct busy busy = {.torch = NULL};
    struct sg_torch_ops ops = sg_ledger_device_ops;
    ops.segment_alloc = busy_alloc;
    struct sg_torch_conf conf;
    sg_torch_conf_init(&conf);
    sg_ledger_device_init(&busy.card, 8 * SG_GIB);
    busy.torch = sg_torch_create(&conf, 8 * SG_GIB, &ops, &busy);
    struct sg_torch_block *block;
    assert_int_equal(sg_torch_alloc(busy.torch, 50 * SG_MIB, STREAM, &block), 0);
    assert_int_equal(sg_torch_stats(busy.torch)->allocated.current, (50 + 600 * 6) * SG_MIB);
    sg_torch_free(busy.torch, block);
    for (size_t i = 0; i < 600; i++)
        sg_torch_free(busy.torch, busy.theirs[i]);
    sg_torch_empty_cache(busy.torch);
    assert_int_equal(busy.card.used, 0);
    sg_torch_destroy(busy.torch);
    sg_ledger_device_clear(&busy.card);
}

/* A free expandable segment that is whole is nothing that garbage collection gives back. There is none where a card has
   no more than was said: it has fewer bytes than a segment addresses. */
static void garbage_is_in_fixed_segments_alone(void **state)
{
    (void)state;
    struct sg_ledger_device card;
    struct sg_torch_conf conf;
    struct sg_torch_block *block;
    char error[SG_TORCH_ERROR_TEXT];
    assert_int_equal(sg_torch_conf_parse("expandable_segments:True,garbage_collection_threshold:0.1,"
                                         "per_process_memory_fraction:0.9",
                         &conf, error),
        0);
    sg_ledger_device_init(&card, SG_GIB);
    struct sg_torch *torch = sg_torch_create(&conf, 17 * SG_MIB, &sg_ledger_device_ops, &card);
    const struct sg_torch_stats *stats = sg_torch_stats(torch);
    assert_int_equal(sg_torch_alloc(torch, 12 * SG_MIB, STREAM, &block), 0);
    assert_int_equal(stats->reserved.current, 20 * SG_MIB); /* a segment of one chunk */
    sg_torch_free(torch, block);
    assert_int_equal(sg_torch_alloc(torch, 1000, OTHER, &block), 0); /* asks for a segment of its own: garbage first */
    assert_int_equal(stats->segment_frees, 0);
    assert_int_equal(stats->retries, 1); /* what is whole has gone after that */
    assert_int_equal(card.used, 2 * SG_MIB);
    sg_torch_free(torch, block);
    sg_torch_destroy(torch);
    sg_ledger_device_clear(&card);
}

/* Oversize blocks that are free go until there is enough: all of them, where it is not. */
static void oversize_that_is_not_enough(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "max_split_size_mb:40", 200 * SG_MIB);
    struct sg_torch_block *kept = get(&bench, 60 * SG_MIB), *a = get(&bench, 50 * SG_MIB), *b = get(&bench, 60 * SG_MIB);
    put(&bench, a);
    put(&bench, b);
    must_run_out(&bench, 150 * SG_MIB);
    assert_int_equal(bench.stats->reserved.current, 60 * SG_MIB);
    assert_int_equal(bench.stats->segment_frees, 2);
    put(&bench, kept);
    tear_down(&bench);
}

/* All that is free has gone, and it is not enough. */
static void garbage_that_is_not_enough(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "garbage_collection_threshold:0.1,per_process_memory_fraction:0.99", SG_GIB);
    struct sg_torch_block *used = get(&bench, 400 * SG_MIB), *garbage = get(&bench, 100 * SG_MIB);
    put(&bench, garbage);
    struct sg_torch_block *next = get(&bench, 200 * SG_MIB);
    assert_int_equal(bench.stats->reserved.current, 600 * SG_MIB);
    put(&bench, used);
    put(&bench, next);
    tear_down(&bench);
}

static void more_than_the_fraction(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "per_process_memory_fraction:0.5", SG_GIB);
    must_run_out(&bench, 600 * SG_MIB);
    must_run_out(&bench, UINT64_C(1) << 60);
    assert_int_equal(sg_torch_address(NULL), 0);
    assert_int_equal(sg_torch_bytes(NULL), 0);
    tear_down(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oversize_blocks_go_first_when_memory_ends),
        cmocka_unit_test(as_many_oversize_blocks_go_as_are_enough),
        cmocka_unit_test(card_is_full_to_the_byte),
        cmocka_unit_test(running_out),
        cmocka_unit_test(flushes_the_cache_once),
        cmocka_unit_test(memory_fraction),
        cmocka_unit_test(garbage_collection),
        cmocka_unit_test(garbage_is_as_old_as_its_pool),
        cmocka_unit_test(oversize_that_is_not_enough),
        cmocka_unit_test(expandable_map_fails_midway),
        cmocka_unit_test(others_while_the_driver_works),
        cmocka_unit_test(garbage_is_in_fixed_segments_alone),
        cmocka_unit_test(garbage_that_is_not_enough),
        cmocka_unit_test(more_than_the_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
