/* PyTorch's allocator over again places, splits and merges segments as PyTorch does. */
#include "caching_steps.h"

static void segments_by_size(void **state)
{
    (void)state;
    static const struct { uint64_t request, segment, block; } cases[] = {
        {1, 2 * SG_MIB, 512},
        {513, 2 * SG_MIB, 1024},
        {SG_MIB, 2 * SG_MIB, SG_MIB},
        {SG_MIB + 1, 20 * SG_MIB, SG_MIB + 512},
        {10 * SG_MIB - 512, 20 * SG_MIB, 10 * SG_MIB - 512},
        {10 * SG_MIB, 10 * SG_MIB, 10 * SG_MIB},
        {19 * SG_MIB + 1, 20 * SG_MIB, 20 * SG_MIB}, /* the rest is not above 1 MiB, so it stays */
        {21 * SG_MIB - 512, 22 * SG_MIB, 21 * SG_MIB - 512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench bench;
        set_up(&bench, "", SG_GIB);
        struct sg_torch_block *block = get(&bench, cases[i].request);
        assert_int_equal(bench.stats->reserved.current, cases[i].segment);
        assert_int_equal(sg_torch_bytes(block), cases[i].block);
        assert_int_equal(bench.stats->requested.current, cases[i].request);
        put(&bench, block);
        tear_down(&bench);
    }
}

/* A setting of ours: no two blocks share a segment, also not one after the other's end, and one that is much too large
   for a request isn't taken for it. */
static void whole_segments(void **state)
{
    (void)state;
    static const struct { uint64_t request, segment;
    } cases[] = {
        {1, 512},
        {SG_MIB, SG_MIB},
        {SG_MIB + 1, 2 * SG_MIB},
        {9 * SG_MIB, 10 * SG_MIB},
        {21 * SG_MIB - 512, 22 * SG_MIB},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    struct bench bench;
    struct sg_torch_conf conf;
    sg_torch_conf_init(&conf);
    conf.whole_segments = true;
    start(&bench, &conf, SG_GIB);
    struct sg_torch_block *block[CASES];
    uint64_t sum = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < CASES; i++) {
            block[i] = get(&bench, cases[i].request);
            assert_int_equal(sg_torch_bytes(block[i]), cases[i].segment);
            sum += round == 0 ? cases[i].segment : 0; /* then each takes its own again */
            assert_int_equal(bench.stats->reserved.current, sum);
        }
        for (int i = 0; i < CASES; i++)
            put(&bench, block[i]);
    }
    block[0] = get(&bench, 15 * SG_MIB); /* 22 MiB would leave more than an eighth idle */
    assert_int_equal(bench.stats->reserved.current, sum + 16 * SG_MIB);
    put(&bench, block[0]);
    tear_down(&bench);
}

static void zero_bytes(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", SG_GIB);
    struct sg_torch_block *block = get(&bench, 0);
    assert_null(block);
    assert_int_equal(sg_torch_record_stream(bench.torch, block, OTHER), 0);
    put(&bench, block);
    assert_int_equal(bench.stats->allocs, 0);
    tear_down(&bench);
}

static void best_fit_then_lowest_address(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", SG_GIB);
    struct sg_torch_block *a = get(&bench, 30 * SG_MIB), *b = get(&bench, 12 * SG_MIB), *c = get(&bench, 12 * SG_MIB);
    uint64_t b_address = sg_torch_address(b), c_address = sg_torch_address(c);
    put(&bench, a);
    put(&bench, c);
    put(&bench, b);
    struct sg_torch_block *again = get(&bench, 12 * SG_MIB);
    assert_int_equal(sg_torch_address(again), b_address < c_address ? b_address : c_address);
    put(&bench, again);
    assert_int_equal(bench.stats->segment_allocs, 3);
    tear_down(&bench);
}

static void freed_neighbours_merge(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", SG_GIB);
    struct sg_torch_block *parts[4];
    for (size_t i = 0; i < 4; i++)
        parts[i] = get(&bench, 5 * SG_MIB);
    assert_int_equal(bench.stats->segment_allocs, 1);
    put(&bench, parts[0]);
    put(&bench, parts[2]);
    put(&bench, parts[1]);
    struct sg_torch_block *fits = get(&bench, 15 * SG_MIB);
    assert_int_equal(bench.stats->segment_allocs, 1);
    put(&bench, fits);
    put(&bench, parts[3]);
    tear_down(&bench);
}

static void pools_are_apart(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", SG_GIB);
    put(&bench, get(&bench, 30 * SG_MIB));
    struct sg_torch_block *small = get(&bench, 1000), *other = get_on(&bench, 30 * SG_MIB, OTHER);
    assert_int_equal(bench.stats->reserved.current, 62 * SG_MIB);
    put(&bench, small);
    put(&bench, other);
    tear_down(&bench);
}

static void oversize_blocks(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "max_split_size_mb:100", SG_GIB);
    put(&bench, get(&bench, 120 * SG_MIB));
    struct sg_torch_block *below = get(&bench, 90 * SG_MIB); /* may not have the oversize block */
    assert_int_equal(bench.stats->reserved.current, 210 * SG_MIB);
    struct sg_torch_block *near = get(&bench, 100 * SG_MIB + 1);
    assert_int_equal(bench.stats->reserved.current, 210 * SG_MIB);
    assert_int_equal(sg_torch_bytes(near), 120 * SG_MIB); /* whole: oversize blocks are not split */
    put(&bench, near);
    struct sg_torch_block *far = get(&bench, 100 * SG_MIB); /* 120 is 100 + the rounding allowed */
    assert_int_equal(bench.stats->reserved.current, 310 * SG_MIB);
    put(&bench, below);
    put(&bench, far);
    tear_down(&bench);
}

static void expandable_grows_by_chunks(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "expandable_segments:True", SG_GIB);
    uint64_t top = bench.card.last_reservation;
    struct sg_torch_block *a = get(&bench, 30 * SG_MIB), *b = get(&bench, 25 * SG_MIB);
    assert_int_equal(top - bench.card.last_reservation, 1160 * SG_MIB); /* 9/8 of the card in chunks of 20 MiB */
    assert_int_equal(bench.stats->reserved.current, 60 * SG_MIB);
    assert_int_equal(sg_torch_address(b), sg_torch_address(a) + 30 * SG_MIB);
    put(&bench, b);
    struct sg_torch_block *c = get(&bench, 50 * SG_MIB); /* 30 free before the end, one chunk more */
    assert_int_equal(sg_torch_address(c), sg_torch_address(a) + 30 * SG_MIB);
    assert_int_equal(bench.stats->reserved.current, 80 * SG_MIB);
    struct sg_torch_block *small = get(&bench, 512);
    assert_int_equal(bench.stats->reserved.current, 82 * SG_MIB);
    assert_int_equal(bench.stats->reserves, 2);
    put(&bench, a);
    put(&bench, c);
    put(&bench, small);
    tear_down(&bench);
}

static void expandable_fills_holes_from_the_lowest_address(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "expandable_segments:True", SG_GIB);
    struct sg_torch_block *a = get(&bench, 50 * SG_MIB), *pin = get(&bench, 2 * SG_MIB);
    uint64_t start = sg_torch_address(a);
    put(&bench, a);
    sg_torch_empty_cache(bench.torch); /* two whole chunks go, the third is shared with the survivor */
    assert_int_equal(bench.stats->reserved.current, 20 * SG_MIB);
    assert_int_equal(bench.card.calls[SG_TORCH_UNMAP], 2);
    struct sg_torch_block *b = get(&bench, 45 * SG_MIB); /* free 10 behind the hole of 40: both are used */
    assert_int_equal(sg_torch_address(b), start);
    assert_int_equal(bench.stats->reserved.current, 60 * SG_MIB);
    struct sg_torch_block *c = get(&bench, 30 * SG_MIB); /* free 8 before the unmapped tail */
    assert_int_equal(sg_torch_address(c), start + 52 * SG_MIB);
    put(&bench, b);
    put(&bench, c);
    put(&bench, pin);
    tear_down(&bench);
    assert_int_equal(bench.card.calls[SG_TORCH_ADDRESS_FREE], 1);
}

/* The cycle of pytorch#123548: two large blocks, then a small one that stays and cuts what the two leave off from the
   unmapped rest of the segment. */
static uint64_t fence(const char *conf, uint64_t first, uint64_t second, uint64_t *ret_start)
{
    enum { CYCLES = 101 };
    struct bench bench;
    struct sg_torch_block *kept[CYCLES], *base;
    set_up(&bench, conf, 16 * SG_GIB);
    base = get(&bench, 64 * SG_MIB);
    for (size_t i = 0; i < CYCLES; i++) {
        struct sg_torch_block *a = get(&bench, first), *b = get(&bench, second);
        kept[i] = get(&bench, 2 * SG_MIB);
        put(&bench, a);
        put(&bench, b);
        if (i == 0)
            *ret_start = bench.stats->reserved.peak;
    }
    assert_int_equal(bench.stats->allocated.current, 266 * SG_MIB);
    uint64_t peak = bench.stats->reserved.peak;
    for (size_t i = 0; i < CYCLES; i++)
        put(&bench, kept[i]);
    put(&bench, base);
    tear_down(&bench);
    return peak;
}

static void a_fence_of_oversize_blocks_runs_away_as_in_pytorch(void **state)
{
    (void)state;
    uint64_t first = 91 * SG_MIB, second = 91 * SG_MIB / 2, start;
    assert_int_equal(fence("max_split_size_mb:128,expandable_segments:True", first, second, &start), 14060 * SG_MIB);
    assert_int_equal(start, 220 * SG_MIB);
    assert_true(fence("expandable_segments:True", first, second, &start) < 500 * SG_MIB);
    assert_true(fence("max_split_size_mb:128", first, second, &start) < 500 * SG_MIB);
    assert_true(fence("", first, second, &start) < 500 * SG_MIB);

    /* The other oversize rule: a request of at least max_split_size, a free range larger by more than the rounding.
       */
    assert_true(fence("max_split_size_mb:80,expandable_segments:True", first, second, &start) > 8 * SG_GIB);
    uint64_t strict = fence("max_split_size_mb:80,expandable_segments:True", first, first / 2, &start);
    assert_true(fence("max_split_size_mb:80,max_non_split_rounding_mb:64,expandable_segments:True", first, first / 2,
                      &start) < strict);
}

static void record_stream(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", SG_GIB);
    struct sg_torch_block *block = get(&bench, 30 * SG_MIB);
    for (uint64_t stream = 0; stream < 20; stream++) {
        assert_int_equal(sg_torch_record_stream(bench.torch, block, stream), 0);
        assert_int_equal(sg_torch_record_stream(bench.torch, block, stream), 0);
    }
    uint64_t address = sg_torch_address(block);
    put(&bench, block);
    assert_int_equal(bench.stats->allocated.current, 0);
    assert_int_equal(bench.stats->requested.current, 0);
    assert_int_equal(bench.stats->active.current, 30 * SG_MIB);
    block = get(&bench, 30 * SG_MIB); /* events are complete when asked about, which an allocation does first */
    assert_int_equal(sg_torch_address(block), address);
    put(&bench, block);
    tear_down(&bench);
}

/* Events that the test completes itself. */
struct slow {
    struct sg_ledger_device card;
    uint64_t recorded, done, waits;
};

static uint64_t slow_record(void *user, uint64_t stream)
{
    (void)stream;
    return ++((struct slow *)user)->recorded;
}

static bool slow_done(void *user, uint64_t event)
{
    return event <= ((struct slow *)user)->done;
}

static void slow_wait(void *user, uint64_t event)
{
    struct slow *slow = user;
    slow->waits++;
    if (slow->done < event)
        slow->done = event;
}

static void pending_blocks(void **state)
{
    (void)state;
    struct slow slow = {.done = 0};
    struct sg_torch_ops ops = sg_ledger_device_ops;
    ops.event_record = slow_record;
    ops.event_done = slow_done;
    ops.event_wait = slow_wait;
    struct sg_torch_conf conf;
    sg_torch_conf_init(&conf);
    sg_ledger_device_init(&slow.card, 100 * SG_MIB);
    struct sg_torch *torch = sg_torch_create(&conf, 100 * SG_MIB, &ops, &slow);
    struct sg_torch_block *a, *b, *c;
    assert_int_equal(sg_torch_alloc(torch, 30 * SG_MIB, STREAM, &a), 0);
    assert_int_equal(sg_torch_record_stream(torch, a, OTHER), 0);
    assert_int_equal(sg_torch_record_stream(torch, a, OTHER + 1), 0);
    assert_int_equal(sg_torch_record_stream(torch, a, OTHER), 0); /* which is known */
    sg_torch_free(torch, a);
    assert_int_equal(slow.recorded, 2);
    assert_int_equal(sg_torch_alloc(torch, 30 * SG_MIB, STREAM, &b), 0);
    assert_int_equal(sg_torch_stats(torch)->reserved.current, 60 * SG_MIB);
    slow.done = 1; /* one of the two streams has passed */
    assert_int_equal(sg_torch_alloc(torch, 30 * SG_MIB, STREAM, &c), 0);
    assert_int_equal(sg_torch_stats(torch)->reserved.current, 90 * SG_MIB);
    assert_int_equal(slow.waits, 0);
    sg_torch_free(torch, c);
    assert_int_equal(sg_torch_alloc(torch, 60 * SG_MIB, STREAM, &c), 0); /* the flush waits, then frees both */
    assert_int_equal(slow.waits, 1);
    assert_int_equal(sg_torch_stats(torch)->reserved.current, 90 * SG_MIB);
    sg_torch_free(torch, b);
    assert_int_equal(sg_torch_record_stream(torch, c, OTHER), 0);
    sg_torch_free(torch, c);
    sg_torch_destroy(torch); /* with an event outstanding */
    sg_ledger_device_clear(&slow.card);
}

/* Pseudo-random traffic: whatever the configuration, all of it comes back, and pieces that are in use never overlap.
   */
static void random_traffic(void **state)
{
    (void)state;
    static const char *const confs[] = {
        "", "max_split_size_mb:40", "expandable_segments:True", "max_split_size_mb:40,expandable_segments:True",
        "roundup_power2_divisions:[1:4,32:8,>:2]", "garbage_collection_threshold:0.7,per_process_memory_fraction:0.9",
        "large_segment_size_mb:32,expandable_segments:True",
    };
    enum { SLOTS = 200, STEPS = 20000 };
    for (size_t k = 0; k < sizeof confs / sizeof *confs; k++) {
        struct bench bench;
        struct sg_torch_block *slots[SLOTS] = {0};
        uint64_t random = 88172645463325252;
        set_up(&bench, confs[k], 2 * SG_GIB);
        for (size_t i = 0; i < STEPS; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            size_t slot = random % SLOTS;
            put(&bench, slots[slot]);
            slots[slot] = NULL;
            uint64_t bytes = (random >> 20) & ((UINT64_C(1) << (random >> 60) % 16 << 10 << (random >> 59 & 1)) - 1);
            int error = sg_torch_alloc(bench.torch, bytes, random >> 40 & 1, &slots[slot]);
            assert_true(error == 0 || error == -ENOMEM);
            if ((random >> 50 & 15) == 0)
                assert_int_equal(sg_torch_record_stream(bench.torch, slots[slot], random >> 41 & 3), 0);
            if ((random >> 30 & 4095) == 0)
                sg_torch_empty_cache(bench.torch);
            assert_int_equal(bench.stats->reserved.current, bench.card.used);
            assert_true(bench.stats->active.current <= bench.stats->reserved.current);
        }
        for (size_t i = 0; i < SLOTS; i++) {
            for (size_t j = 0; j < i && slots[i]; j++) {
                uint64_t a = sg_torch_address(slots[i]), b = sg_torch_address(slots[j]);
                assert_true(!slots[j] || a + sg_torch_bytes(slots[i]) <= b || b + sg_torch_bytes(slots[j]) <= a);
            }
        }
        for (size_t i = 0; i < SLOTS; i++)
            put(&bench, slots[i]);
        tear_down(&bench);
    }
}

/* A card whose addresses of an expandable segment are all mapped, since its memory has no end: a block at their end has
   nothing behind it, and a whole such segment is none of fixed size. */
static uint64_t reserve_result;

static int reserve_or_not(void *user, uint64_t bytes, uint64_t *ret_address)
{
    return reserve_result ? -EIO : sg_ledger_device_ops.reserve(user, bytes, ret_address);
}

static void expandable_to_the_end_of_the_addresses(void **state)
{
    (void)state;
    struct sg_torch_conf conf;
    struct sg_ledger_device card;
    struct sg_torch_ops ops = sg_ledger_device_ops;
    struct sg_torch_block *block[9], *more;
    char error[SG_TORCH_ERROR_TEXT];
    ops.reserve = reserve_or_not;
    /* segments of 9/8 of 160 MiB; all that may be held is more than that */
    assert_int_equal(sg_torch_conf_parse("expandable_segments:True,garbage_collection_threshold:0.3,"
        "per_process_memory_fraction:1", &conf, error), 0);
    sg_ledger_device_init(&card, SG_GIB);
    struct sg_torch *torch = sg_torch_create(&conf, 160 * SG_MIB, &ops, &card);
    const struct sg_torch_stats *stats = sg_torch_stats(torch);
    for (int i = 0; i < 9; i++)
        assert_int_equal(sg_torch_alloc(torch, 20 * SG_MIB, STREAM, &block[i]), 0);
    assert_int_equal(stats->reserves, 1);
    assert_int_equal(stats->reserved.current, 180 * SG_MIB);
    reserve_result = 1; /* there are no addresses for a second one */
    assert_int_equal(sg_torch_alloc(torch, 20 * SG_MIB, STREAM, &more), -EIO);
    reserve_result = 0;
    sg_torch_free(torch, block[2]);
    sg_torch_free(torch, block[8]);
    assert_int_equal(sg_torch_alloc(torch, 20 * SG_MIB, STREAM, &more), 0); /* the lower of two that can't grow */
    assert_int_equal(sg_torch_address(more), sg_torch_address(block[0]) + 40 * SG_MIB);
    sg_torch_free(torch, more);
    for (int i = 0; i < 8; i++)
        if (i != 2)
            sg_torch_free(torch, block[i]);
    sg_torch_empty_cache(torch);
    assert_int_equal(card.used, 0);
    assert_int_equal(stats->unreserves, 1);
    sg_torch_destroy(torch);
    sg_ledger_device_clear(&card);
}

/* An exbibyte is refused before anything is asked for. */
static void an_exbibyte_is_refused_unasked(void **state)
{
    (void)state;
    struct bench bench;
    set_up(&bench, "", SG_GIB);
    must_run_out(&bench, UINT64_C(1) << 60);
    assert_int_equal(bench.stats->retries, 0);
    must_run_out(&bench, (UINT64_C(1) << 60) - 1);
    assert_int_equal(bench.stats->retries, 1);
    tear_down(&bench);
}

/* The case of caching_allocator.h and of ledger_device.h. */
static void worked_case(void **state)
{
    (void)state;
    for (int expandable = 0; expandable < 2; expandable++) {
        struct bench bench;
        set_up(&bench, expandable ? "expandable_segments:True" : NULL, 24 * SG_GIB);
        struct sg_torch_block *three = get(&bench, 3 * SG_MIB);
        assert_int_equal(bench.stats->reserved.current, 20 * SG_MIB);
        struct sg_torch_block *small = get(&bench, 300 * SG_KIB);
        assert_int_equal(sg_torch_bytes(small), 307200);
        assert_int_equal(bench.stats->reserved.current, 22 * SG_MIB);
        struct sg_torch_block *twelve[2] = {get(&bench, 12 * SG_MIB)};
        assert_int_equal(sg_torch_address(twelve[0]), sg_torch_address(three) + 3 * SG_MIB);
        assert_int_equal(bench.stats->reserved.current, 22 * SG_MIB);
        if (!expandable) {
            assert_int_equal(sg_torch_address(three), UINT64_C(0x10000000000));
            assert_int_equal(sg_torch_address(small), UINT64_C(0x10001400000));
        }
        twelve[1] = get(&bench, 12 * SG_MIB);
        assert_int_equal(bench.stats->reserved.current, (expandable ? 42 : 34) * SG_MIB);
        put(&bench, three);
        sg_torch_empty_cache(bench.torch);
        assert_int_equal(bench.stats->reserved.current, (expandable ? 42 : 34) * SG_MIB);
        put(&bench, small);
        put(&bench, twelve[0]);
        put(&bench, twelve[1]);
        sg_torch_empty_cache(bench.torch);
        sg_torch_destroy(bench.torch);
        sg_ledger_device_clear(&bench.card);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_by_size),
        cmocka_unit_test(whole_segments),
        cmocka_unit_test(worked_case),
        cmocka_unit_test(zero_bytes),
        cmocka_unit_test(best_fit_then_lowest_address),
        cmocka_unit_test(freed_neighbours_merge),
        cmocka_unit_test(pools_are_apart),
        cmocka_unit_test(oversize_blocks),
        cmocka_unit_test(an_exbibyte_is_refused_unasked),
        cmocka_unit_test(expandable_grows_by_chunks),
        cmocka_unit_test(expandable_fills_holes_from_the_lowest_address),
        cmocka_unit_test(a_fence_of_oversize_blocks_runs_away_as_in_pytorch),
        cmocka_unit_test(record_stream),
        cmocka_unit_test(pending_blocks),
        cmocka_unit_test(expandable_to_the_end_of_the_addresses),
        cmocka_unit_test(random_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
