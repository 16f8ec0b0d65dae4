/* PyTorch's statistics have what is ours, in its types and its pools. */
#include "torch_blocks_fakes.h"

static void nothing_is_added_where_nothing_is_known(void **state)
{
    static const statistics none;
    for (int i = 0; i < 3; i++) {
        statistics counts = {{{0}}};
        start_afresh(state);
        fake.direct = i != 0;
        fake.no_core = i == 1;
        fake.unknown = i == 2;
        fake.stats.value[SG_STAT_allocations] = fake.stats.value[SG_STAT_reserved_bytes] = 5;
        sg_torch_counts_add(counts, 0, 1);
        assert_memory_equal(counts, none, sizeof none);
        sg_torch_counts_reset(1);
        assert_int_equal(fake.reset_peaks, fake.direct);
    }
}

/* All that is ours is of the large pool; levels and totals beyond PyTorch's type are its greatest. */
static void levels_and_totals_are_added_to_all_and_large(void **state)
{
    statistics counts = {{{0}}}, before;
    (void)state;
    fake.direct = true;
    for (int i = 0; i < SG_STAT_COUNT; i++) {
        fake.stats.value[i] = 1000 + (uint64_t)i;
        fake.stats.peak[i] = 3000 + (uint64_t)i;
    }
    for (int i = 0; i < FAMILIES * 3 * NUMBERS; i++)
        ((int64_t *)counts)[i] = i;
    memcpy(before, counts, sizeof before);
    sg_torch_counts_add(counts, 0, 1);
    assert_int_equal(fake.device, 1);
    for (int family = 0; family < FAMILIES; family++) {
        for (int number = 0; number < NUMBERS; number++) {
            int64_t all = counts[family][0][number] - before[family][0][number];
            assert_int_equal(counts[family][1][number], before[family][1][number]);
            if (number != PEAK)
                assert_int_equal(counts[family][2][number] - before[family][2][number], all);
        }
    }
    assert_int_equal(counts[ALLOCATION][0][CURRENT] - before[ALLOCATION][0][CURRENT],
        fake.stats.value[SG_STAT_allocations]);
    assert_int_equal(counts[ALLOCATION][0][PEAK] - before[ALLOCATION][0][PEAK], fake.stats.peak[SG_STAT_allocations]);
    assert_int_equal(counts[ALLOCATION][0][ALLOCATED] - before[ALLOCATION][0][ALLOCATED],
        fake.stats.value[SG_STAT_allocs]);
    assert_int_equal(counts[ALLOCATION][0][FREED] - before[ALLOCATION][0][FREED], fake.stats.value[SG_STAT_frees]);
    assert_int_equal(counts[RESERVED_BYTES][0][CURRENT] - before[RESERVED_BYTES][0][CURRENT],
        fake.stats.value[SG_STAT_reserved_bytes]);

    memset(counts, 0, sizeof counts);
    fake.stats.value[SG_STAT_allocations] = UINT64_MAX;
    fake.stats.peak[SG_STAT_allocations] = (uint64_t)INT64_MAX + 1;
    sg_torch_counts_add(counts, 0, 1);
    assert_true(counts[ALLOCATION][0][CURRENT] == INT64_MAX && counts[ALLOCATION][0][PEAK] == INT64_MAX);
}

/* PyTorch 2.13 has a map among the families, which is left alone. */
static void counts_stand_around_a_map(void **state)
{
    enum { MAP = 4 };
    statistics counts = {{{0}}};
    struct {
        int64_t before[ACTIVE_BYTES][3][NUMBERS], map[MAP], after[FAMILIES + MORE_ROOM - ACTIVE_BYTES][3][NUMBERS];
    } parted = {.map = {11, 12, 13, 14}};
    (void)state;
    fake.direct = true;
    for (int i = 0; i < SG_STAT_COUNT; i++)
        fake.stats.value[i] = fake.stats.peak[i] = 1000 + (uint64_t)i;
    sg_torch_counts_add(counts, 0, 1);
    sg_torch_counts_add(&parted, sizeof parted.map, 1);
    assert_memory_equal(parted.before, counts, sizeof parted.before);
    assert_memory_equal(parted.after, counts[ACTIVE_BYTES], sizeof parted.after);
    for (int i = 0; i < MAP; i++)
        assert_int_equal(parted.map[i], 11 + i);
    assert_int_not_equal(parted.after[0][0][CURRENT], 0);
}

/* PyTorch's own segments are blocks of ours, and no tensors. */
static void segments_of_the_cache_are_no_tensors(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        statistics counts = {{{0}}};
        start_afresh(state);
        fake.direct = true;
        atomic_store(&sg_torch_segments_seen, true);
        fake.stats.value[SG_STAT_allocations] = 100;
        fake.stats.peak[SG_STAT_allocations] = 200;
        fake.stats.value[SG_STAT_allocated_bytes] = 1000;
        int segments = i == 0 ? 0 : i == 1 ? 30 : 150; /* more than there are of ours: none */
        for (int k = 0; k < segments; k++)
            sg_torch_segment_made(BLOCK_AT(k), 5);
        sg_torch_counts_add(counts, 0, DEVICE);
        assert_int_equal(counts[ALLOCATION][0][CURRENT], i == 0 ? 100 : i == 1 ? 70 : 0);
        assert_int_equal(counts[ALLOCATION][0][PEAK], i == 0 ? 200 : i == 1 ? 170 : 50);
        assert_int_equal(counts[ALLOCATED_BYTES][0][CURRENT], 1000 - 5 * segments);
        for (int k = 0; k < segments; k++)
            assert_true(sg_torch_is_segment(BLOCK_AT(k)) && sg_torch_segment_gone(BLOCK_AT(k)));
        assert_false(sg_torch_is_segment(BLOCK_AT(0)) || sg_torch_segment_gone(BLOCK_AT(0)));
        assert_int_equal(sg_torch_segments_of(DEVICE).count, 0);
    }
}

/* The core has so many bytes now, by so many allocations. */
static void core_has(uint64_t bytes, uint64_t allocations)
{
    const enum sg_stat levels[] = {SG_STAT_allocated_bytes, SG_STAT_reserved_bytes, SG_STAT_allocations};
    for (int i = 0; i < 3; i++) {
        uint64_t value = i < 2 ? bytes : allocations, *peaks[] = {fake.interval_peak, fake.stats.peak};
        fake.stats.value[levels[i]] = value;
        for (int k = 0; k < 2; k++)
            peaks[k][levels[i]] = peaks[k][levels[i]] > value ? peaks[k][levels[i]] : value;
    }
}

static int64_t allocated_peak(int64_t theirs_now, int64_t theirs_peak, int64_t reserved_now, int64_t reserved_peak)
{
    statistics counts = {{{0}}};
    counts[ALLOCATED_BYTES][0][CURRENT] = theirs_now;
    counts[ALLOCATED_BYTES][0][PEAK] = theirs_peak;
    counts[RESERVED_BYTES][0][CURRENT] = reserved_now;
    counts[RESERVED_BYTES][0][PEAK] = reserved_peak;
    sg_torch_counts_add(counts, 0, DEVICE);
    assert_true(counts[ALLOCATED_BYTES][0][PEAK] >= counts[ALLOCATED_BYTES][0][CURRENT]);
    return counts[ALLOCATED_BYTES][0][PEAK];
}

/* 500 bytes are ours, a pool's segment of 300 comes and goes, then 200 more are ours: 700 without the segment. */
static void peaks_are_without_segments(void **state)
{
    (void)state;
    fake.direct = fake.intervals = true;
    atomic_store(&sg_torch_segments_seen, true);
    sg_torch_counts_reset(DEVICE);
    assert_int_equal(fake.reset_peaks, 1);
    core_has(500, 1);
    sg_torch_peaks_end();
    core_has(800, 2);
    sg_torch_segment_made(BLOCK_AT(0), 300);
    assert_int_equal(allocated_peak(0, 0, 300, 300), 500); /* the segment is idle */
    assert_int_equal(allocated_peak(100, 250, 300, 300), 750);
    assert_int_equal(sg_torch_peaks_of(DEVICE).segment_bytes, 300);
    assert_int_equal(sg_torch_peaks_of(DEVICE).level[SG_STAT_allocations], 1);
    sg_torch_peaks_end();
    assert_true(sg_torch_segment_gone(BLOCK_AT(0)));
    core_has(500, 1);
    sg_torch_peaks_begin();
    assert_int_equal(allocated_peak(0, 0, 0, 300), 500);
    core_has(700, 2);
    core_has(500, 1);
    assert_int_equal(allocated_peak(0, 0, 0, 300), 700);
    assert_int_equal(sg_torch_peaks_of(DEVICE).level[SG_STAT_allocations], 2);
    memset(fake.stats.peak, 0, sizeof fake.stats.peak);
    sg_torch_counts_reset(DEVICE);
    assert_int_equal(sg_torch_peaks_of(DEVICE).segment_bytes, 0);
    assert_int_equal(allocated_peak(0, 0, 0, 0), 500);
    sg_torch_peaks_reset(-1);
    assert_int_equal(sg_torch_peaks_of(-1).segment_bytes, 0);
    fake.no_core = true;
    assert_int_equal(sg_torch_peaks_of(DEVICE).level[SG_STAT_allocated_bytes], 0);
    sg_torch_peaks_end();
}

/* 100 are ours all the time, 2 more before a segment of 20 comes, and the cache has 5 in it: 105, and not 107. Then 30 more are in a
   segment of their own. */
static void what_was_gone_before_a_segment_is_not_added(void **state)
{
    (void)state;
    fake.direct = fake.intervals = true;
    atomic_store(&sg_torch_segments_seen, true);
    sg_torch_counts_reset(DEVICE);
    core_has(102, 2);
    core_has(100, 1);
    sg_torch_peaks_end();
    core_has(120, 2);
    sg_torch_segment_made(BLOCK_AT(0), 20);
    assert_int_equal(allocated_peak(5, 5, 20, 20), 105);
    sg_torch_peaks_end();
    core_has(150, 3);
    sg_torch_segment_made(BLOCK_AT(1), 30);
    assert_int_equal(allocated_peak(35, 35, 50, 50), 135);
    assert_true(sg_torch_segment_gone(BLOCK_AT(0)) && sg_torch_segment_gone(BLOCK_AT(1)));
}

/* More intervals than are kept: the peak is never too low, and exact where few stand out. */
static void many_intervals(void **state)
{
    (void)state;
    enum { MANY = 3 * SG_TORCH_INTERVALS };
    for (int falls = 0; falls < 2; falls++) { /* ours grow with the segments, or make room for them */
        start_afresh(state);
        fake.direct = fake.intervals = true;
        atomic_store(&sg_torch_segments_seen, true);
        sg_torch_counts_reset(DEVICE);
        for (int i = 1; i <= MANY; i++) {
            sg_torch_peaks_end();
            core_has((uint64_t)(falls ? 2 * (MANY - i) + 10 * i : 11 * i), 1);
            sg_torch_segment_made(BLOCK_AT(i), 10);
        }
        int64_t most = falls ? 10 * MANY : 11 * MANY, peak = allocated_peak(0, 10 * MANY, 10 * MANY, 10 * MANY);
        assert_true(falls ? peak >= most && peak <= most + 2 * MANY : peak == most);
        for (int i = 1; i <= MANY; i++)
            assert_true(sg_torch_segment_gone(BLOCK_AT(i)));
    }
}

/* Expandable segments are none of the core's blocks: its peak bounds what it served alone. */
static void memory_beyond_the_core_adds_to_peaks(void **state)
{
    (void)state;
    fake.direct = fake.intervals = true;
    sg_torch_counts_reset(DEVICE);
    core_has(500, 1);
    assert_int_equal(allocated_peak(300, 300, 300, 300), 800);
    assert_int_equal(allocated_peak(0, 300, 0, 300), 800);
    assert_int_equal(allocated_peak(300, 300, 300, 0), 800);
    assert_int_equal(allocated_peak(0, 300, 0, 0), 500); /* it is the core's own */
}

/* The peaks of the two allocators are of different times, and PyTorch's segments are blocks of ours. */
static void peaks_of_bytes_are_no_sums(void **state)
{
    static const struct {
        int64_t theirs_now, theirs_peak;
        uint64_t ours_now, ours_peak; /* with segments of theirs_now bytes */
        int64_t now, peak;
    } cases[] = {{0, 600, 900, 900, 900, 900}, {0, 1000, 900, 900, 900, 1000}, {300, 300, 400, 500, 400, 500}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        statistics counts = {{{0}}};
        start_afresh(state);
        fake.direct = true;
        atomic_store(&sg_torch_segments_seen, true);
        sg_torch_segment_made(BLOCK_AT(0), (size_t)cases[i].theirs_peak);
        sg_torch_peaks_end();
        assert_true(sg_torch_segment_gone(BLOCK_AT(0)));
        sg_torch_peaks_begin();
        if (cases[i].theirs_now)
            sg_torch_segment_made(BLOCK_AT(0), (size_t)cases[i].theirs_now);
        fake.stats.value[SG_STAT_reserved_bytes] = cases[i].ours_now;
        fake.stats.peak[SG_STAT_reserved_bytes] = cases[i].ours_peak;
        for (int pool = 0; pool < 3; pool += 2) {
            counts[RESERVED_BYTES][pool][CURRENT] = cases[i].theirs_now;
            counts[RESERVED_BYTES][pool][PEAK] = cases[i].theirs_peak;
        }
        sg_torch_counts_add(counts, 0, DEVICE);
        for (int pool = 0; pool < 3; pool += 2) {
            assert_int_equal(counts[RESERVED_BYTES][pool][CURRENT], cases[i].now);
            assert_int_equal(counts[RESERVED_BYTES][pool][PEAK], cases[i].peak);
        }
        if (cases[i].theirs_now)
            assert_true(sg_torch_segment_gone(BLOCK_AT(0)));
    }
}

/* Segments whose addresses meet in the table are found whichever goes first. */
static void segments_are_found_beside_each_other(void **state)
{
    enum { MANY = 40000 };
    (void)state;
    atomic_store(&sg_torch_segments_seen, true);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < MANY; i++)
            sg_torch_segment_made(BLOCK_AT(i), 1);
        for (int i = round % 2; i < MANY; i += 2)
            assert_true(sg_torch_segment_gone(BLOCK_AT(i)));
        for (int i = 0; i < MANY; i++)
            assert_int_equal(sg_torch_is_segment(BLOCK_AT(i)), i % 2 != round % 2);
        for (int i = 1 - round % 2; i < MANY; i += 2)
            assert_true(sg_torch_segment_gone(BLOCK_AT(i)));
        assert_int_equal(sg_torch_segments_of(DEVICE).bytes, 0);
    }
}

/* A number behind the families. */
static int64_t scalar(statistics counts, int at)
{
    return ((int64_t *)counts[FAMILIES])[at];
}

/* The driver refused some allocations before the core served them, and the core refused others. */
static void retries_and_calls_of_the_driver_are_added(void **state)
{
    statistics counts = {{{0}}};
    (void)state;
    fake.direct = true;
    fake.stats.value[SG_STAT_retries] = 3;
    fake.stats.value[SG_STAT_host_waits] = 7;
    fake.stats.value[SG_STAT_calls_create] = 20;
    fake.stats.value[SG_STAT_calls_alloc] = 2;
    fake.stats.value[SG_STAT_calls_release] = 9;
    fake.stats.value[SG_STAT_calls_free] = 1;
    atomic_store(&sg_torch_segments_seen, true);
    sg_torch_segment_made(BLOCK_AT(0), 5); /* PyTorch counts what it asked for: a block of ours */
    sg_torch_counts_retry(DEVICE);
    sg_torch_counts_retry(2);
    sg_torch_counts_retry(-1);
    struct sg_torch_segments segments = sg_torch_segments_of(DEVICE);
    sg_torch_counts_add(counts, 0, DEVICE);
    assert_int_equal(scalar(counts, RETRIES_AT), 4);
    assert_int_equal(scalar(counts, OOMS_AT), 0);
    assert_int_equal(scalar(counts, SYNCS_AT), 7);
    assert_int_equal(scalar(counts, DEVICE_ALLOCS_AT), segments.made < 22 ? 22 - (int64_t)segments.made : 0);
    assert_int_equal(scalar(counts, DEVICE_FREES_AT), segments.gone < 10 ? 10 - (int64_t)segments.gone : 0);
    for (int at = OOMS_AT + 1; at < SYNCS_AT; at++)
        assert_int_equal(scalar(counts, at), 0);
    assert_true(sg_torch_segment_gone(BLOCK_AT(0)));
    sg_torch_counts_reset_totals(DEVICE);
    fake.stats.value[SG_STAT_calls_release] = 12;
    fake.stats.value[SG_STAT_host_waits] = 8;
    memset(counts, 0, sizeof counts);
    sg_torch_counts_add(counts, 0, DEVICE);
    assert_int_equal(scalar(counts, RETRIES_AT), 0);
    assert_int_equal(scalar(counts, SYNCS_AT), 1);
    assert_int_equal(scalar(counts, DEVICE_ALLOCS_AT), 0);
}

/* Totals are of the time since they were last reset, levels are not; a failure is one of PyTorch's. */
static void totals_begin_anew(void **state)
{
    statistics counts = {{{0}}};
    (void)state;
    fake.direct = true;
    fake.stats.value[SG_STAT_allocs] = 10;
    fake.stats.value[SG_STAT_allocations] = 4;
    fake.stats.value[SG_STAT_allocated_total_bytes] = 100;
    sg_torch_counts_oom(1);
    sg_torch_counts_oom(1);
    sg_torch_counts_oom(2);
    sg_torch_counts_oom(-1);
    sg_torch_counts_add(counts, 0, 1);
    assert_int_equal(counts[ALLOCATION][0][ALLOCATED], 10);
    assert_int_equal(counts[FAMILIES][0][OOMS_AT], 2);
    sg_torch_counts_reset_totals(1);
    fake.stats.value[SG_STAT_allocs] = 13;
    sg_torch_counts_oom(1);
    memset(counts, 0, sizeof counts);
    sg_torch_counts_add(counts, 0, 1);
    assert_int_equal(counts[ALLOCATION][0][ALLOCATED], 3);
    assert_int_equal(counts[ALLOCATION][0][CURRENT], 4);
    assert_int_equal(counts[ALLOCATED_BYTES][0][ALLOCATED], 0);
    assert_int_equal(counts[FAMILIES][0][OOMS_AT], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_added_where_nothing_is_known),
        TEST(levels_and_totals_are_added_to_all_and_large),
        TEST(retries_and_calls_of_the_driver_are_added),
        TEST(counts_stand_around_a_map),
        TEST(segments_of_the_cache_are_no_tensors),
        TEST(peaks_are_without_segments),
        TEST(what_was_gone_before_a_segment_is_not_added),
        TEST(many_intervals),
        TEST(memory_beyond_the_core_adds_to_peaks),
        TEST(peaks_of_bytes_are_no_sums),
        TEST(segments_are_found_beside_each_other),
        TEST(totals_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
