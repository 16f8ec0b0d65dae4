/* Tensors that PyTorch sends to other processes, and its statistics as ours make them, against a PyTorch, a core and a
   driver made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "balance.h"
#include "track/captures.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/symbols.h"
#include "torch/torch_current.h"
#include "track/torch_mode.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_peaks.h"
#include "torch/torch_segments.h"
#include "torch/torch_sent.h"

enum { BYTES = 5000, MORE = 64 << 20, COPIES = 4096, DEVICE = 3 };
#define BLOCK_AT(number) ((void *)(uintptr_t)(0x100000 + 0x10000 * (uintptr_t)(number)))
#define COPY_AT(number) ((void *)(uintptr_t)(0x40000000 + 0x10000 * (uintptr_t)(number)))

atomic_bool sg_captures_begun;

static struct {
    bool no_core, inside_block, fixed, pushes, no_copy;
    CUresult block, wait, free, full; /* full: what the driver answers until PyTorch has emptied its cache */
    CUresult then;                    /* and after that */
    int waits, waits_before, gets, puts, copies, resets, probes, frees, pushed, popped, found, closed;
    int device;
    size_t probed, got, copied;
    void *put, *to;
    const void *from;
    bool direct, switched;
    int reset_peaks;
    bool unknown;
    struct sg_stats stats;
    bool intervals; /* the core keeps peaks of intervals by itself; else those of `stats` are an interval's too */
    uint64_t interval_peak[SG_STAT_COUNT];
} fake;

struct sg_core *sg_enter(void)
{
    return balance_begin(fake.no_core ? NULL : (struct sg_core *)&fake);
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    assert_ptr_equal(core, &fake);
    *ret = (struct sg_block_info){.base = address - (fake.inside_block ? 512 : 0), .bytes = BYTES, .device = DEVICE};
    return fake.block;
}

bool sg_core_stats_recent(struct sg_core *core, int device, struct sg_stats *ret)
{
    assert_ptr_equal(core, &fake);
    fake.device = device;
    *ret = fake.stats;
    return !fake.unknown;
}

/* An interval's peaks begin again at what there is now. */
bool sg_core_interval_peaks(struct sg_core *core, int device, bool ends, struct sg_stats *ret)
{
    assert_ptr_equal(core, &fake);
    if (device != DEVICE && device != 1)
        return false;
    *ret = fake.stats;
    if (fake.intervals)
        memcpy(ret->peak, fake.interval_peak, sizeof ret->peak);
    if (ends)
        memcpy(fake.interval_peak, fake.stats.value, sizeof fake.interval_peak);
    return !fake.unknown;
}

void segalloc_reset_peaks(int device);
void segalloc_reset_peaks(int device)
{
    fake.device = device;
    fake.reset_peaks++;
}

static CUresult allocate(CUdeviceptr *ret, size_t bytes)
{
    fake.probes++;
    fake.probed = bytes;
    *ret = 77;
    return fake.resets ? fake.then : fake.full;
}

static CUresult free_it(CUdeviceptr address)
{
    assert_int_equal(address, 77);
    fake.frees++;
    return fake.free;
}

const struct sg_real *sg_real(void)
{
    static const struct sg_real real = {.cuMemAlloc_v2 = allocate, .cuMemFree_v2 = free_it};
    return &real;
}

static CUresult current_device(CUdevice *ret)
{
    *ret = DEVICE;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.ctx_get_device = current_device};
    return &driver;
}

CUresult sg_captures_wait(CUcontext context)
{
    assert_null(context);
    assert_int_equal(fake.pushed, 1);
    assert_int_equal(fake.popped, 0);
    fake.waits++;
    fake.waits_before += fake.copies == 0;
    return fake.wait;
}

void segalloc_torch_reset(void);
void segalloc_torch_reset(void)
{
    fake.resets++;
}

bool sg_torch_switchable(void)
{
    return !fake.fixed;
}

bool sg_torch_switched(void)
{
    return fake.switched;
}

bool sg_torch_direct(void)
{
    return fake.direct;
}

bool sg_torch_push_device(const struct sg_driver *driver, int device)
{
    assert_ptr_equal(driver, sg_process_driver());
    fake.device = device;
    fake.pushed++;
    return fake.pushes;
}

void sg_torch_pop_device(const struct sg_driver *driver, bool pushed)
{
    assert_ptr_equal(driver, sg_process_driver());
    assert_int_equal(pushed, fake.pushes);
    fake.popped++;
}

void *sg_torch_allocator_get(size_t bytes)
{
    fake.got = bytes;
    return fake.no_copy ? NULL : COPY_AT(fake.gets++);
}

void sg_torch_allocator_put(void *block)
{
    fake.put = block;
    fake.puts++;
}

void sg_torch_allocator_copy(void *to, const void *from, size_t bytes)
{
    fake.to = to;
    fake.from = from;
    fake.copied = bytes;
    fake.copies++;
}

/* PyTorch's own function of the same name as ours. */
struct data_ptr {
    uintptr_t words[4];
};
struct data_ptr sent_data(void *data, uint16_t device) __asm__("_ZN5torch24GetNewRefCountedSentDataEPvN3c106DeviceE");

static struct data_ptr theirs(void *data, uint16_t device)
{
    return (struct data_ptr){{(uintptr_t)data, device, 3, 4}};
}

void *sg_library_find(const char *prefix)
{
    assert_string_equal(prefix, "libtorch_cuda.so");
    fake.found++;
    return &fake;
}

int sg_library_close(void *handle)
{
    assert_ptr_equal(handle, &fake);
    fake.closed++;
    return 0;
}

static void *look_up(void *handle, const char *name)
{
    struct data_ptr (*function)(void *, uint16_t) = theirs;
    void *symbol;
    assert_ptr_equal(handle, &fake);
    assert_string_equal(name, "_ZN5torch24GetNewRefCountedSentDataEPvN3c106DeviceE");
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

/* What the tests before have sent was freed. */
static int start_afresh(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.pushes = true;
    fake.intervals = true;
    sg_torch_peaks_reset(DEVICE);
    sg_torch_peaks_reset(1);
    fake.intervals = false;
    atomic_store(&sg_torch_segments_seen, false);
    atomic_store(&sg_captures_begun, false);
    return 0;
}

static void expect_sent(void *block, uintptr_t as)
{
    struct data_ptr sent = sent_data(block, 0x0102);
    assert_int_equal(sent.words[0], as);
    assert_int_equal(sent.words[1], 0x0102);
    assert_int_equal(fake.found, fake.closed);
}

static void tensor_moves_to_a_block_of_the_cache(void **state)
{
    (void)state;
    assert_ptr_equal(sg_torch_sent_copy(BLOCK_AT(1)), COPY_AT(0));
    assert_int_equal(fake.device, DEVICE);
    assert_int_equal(fake.pushed, 1);
    assert_int_equal(fake.popped, 1);
    assert_int_equal(fake.waits, 2); /* until the block is written, and the copy */
    assert_int_equal(fake.waits_before, 1);
    assert_int_equal(fake.probed, BYTES + MORE);
    assert_int_equal(fake.frees, 1);
    assert_int_equal(fake.resets, 0);
    assert_int_equal(fake.got, BYTES);
    assert_int_equal(fake.copied, BYTES);
    assert_ptr_equal(fake.to, COPY_AT(0));
    assert_ptr_equal(fake.from, BLOCK_AT(1));
    expect_sent(BLOCK_AT(1), (uintptr_t)COPY_AT(0));
    expect_sent(BLOCK_AT(1), (uintptr_t)BLOCK_AT(1)); /* once */
    assert_int_equal(atomic_load(&sg_torch_sent_copies), 1);
    sg_torch_sent_freed(BLOCK_AT(2));
    assert_int_equal(fake.puts, 0);
    sg_torch_sent_freed(BLOCK_AT(1));
    assert_int_equal(fake.puts, 1);
    assert_ptr_equal(fake.put, COPY_AT(0));
    sg_torch_sent_freed(BLOCK_AT(1));
    assert_int_equal(fake.puts, 1);
    assert_int_equal(atomic_load(&sg_torch_sent_copies), 0);
}

/* What is sent next may be another tensor, which stays where it is. */
static void only_that_tensor_moves(void **state)
{
    (void)state;
    assert_non_null(sg_torch_sent_copy(BLOCK_AT(1)));
    expect_sent(BLOCK_AT(2), (uintptr_t)BLOCK_AT(2));
    expect_sent(BLOCK_AT(1), (uintptr_t)BLOCK_AT(1)); /* its step is over */
    sg_torch_sent_freed(BLOCK_AT(1));
    expect_sent(NULL, 0);
}

static void tensor_stays_where_it_cannot_move(void **state)
{
    for (int i = 0; i < 10; i++) {
        start_afresh(state);
        fake.no_core = i == 0;
        fake.block = i == 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
        fake.inside_block = i == 2;
        atomic_store(&sg_captures_begun, i == 3);
        fake.fixed = i == 4;
        fake.wait = i == 5 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
        fake.full = i == 6 ? CUDA_ERROR_OUT_OF_MEMORY : i == 7 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
        fake.then = CUDA_ERROR_OUT_OF_MEMORY;
        fake.free = i == 8 ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
        fake.no_copy = i == 9;
        assert_null(sg_torch_sent_copy(BLOCK_AT(1)));
        assert_int_equal(fake.pushed, i >= 5);
        assert_int_equal(fake.popped, i >= 5);
        assert_int_equal(fake.probes, i < 6 ? 0 : i == 6 ? 2 : 1);
        assert_int_equal(fake.resets, i == 6);
        assert_int_equal(fake.frees, i >= 8);
        assert_int_equal(fake.copies + fake.puts, 0);
        expect_sent(BLOCK_AT(1), (uintptr_t)BLOCK_AT(1));
        assert_int_equal(atomic_load(&sg_torch_sent_copies), 0);
    }
}

static void idle_memory_makes_room_for_it(void **state)
{
    (void)state;
    fake.full = CUDA_ERROR_OUT_OF_MEMORY;
    assert_non_null(sg_torch_sent_copy(BLOCK_AT(1)));
    assert_int_equal(fake.resets, 1);
    assert_int_equal(fake.probes, 2);
    assert_int_equal(fake.probed, BYTES + MORE);
    assert_int_equal(fake.frees, 1);
    sg_torch_sent_freed(BLOCK_AT(1));
}

/* Whichever goes first. */
static void each_copy_goes_with_its_block(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        start_afresh(state);
        for (int k = 0; k < 3; k++) {
            fake.pushed = fake.popped = 0;
            assert_ptr_equal(sg_torch_sent_copy(BLOCK_AT(k)), COPY_AT(k));
        }
        for (int k = 0; k < 3; k++) {
            sg_torch_sent_freed(BLOCK_AT(orders[i][k]));
            assert_int_equal(fake.puts, k + 1);
            assert_ptr_equal(fake.put, COPY_AT(orders[i][k]));
            assert_int_equal(atomic_load(&sg_torch_sent_copies), 2 - k);
        }
    }
}

static void copies_beyond_the_table_are_given_back(void **state)
{
    (void)state;
    for (int i = 0; i < COPIES; i++) {
        fake.pushed = fake.popped = 0;
        assert_non_null(sg_torch_sent_copy(BLOCK_AT(i)));
    }
    assert_int_equal(fake.puts, 0);
    for (int i = 0; i < 2; i++) {
        fake.pushed = fake.popped = 0;
        assert_null(sg_torch_sent_copy(BLOCK_AT(COPIES)));
        assert_int_equal(fake.puts, i + 1);
        assert_ptr_equal(fake.put, COPY_AT(COPIES + i));
        expect_sent(BLOCK_AT(COPIES), (uintptr_t)BLOCK_AT(COPIES));
    }
    assert_int_equal(atomic_load(&sg_torch_sent_copies), COPIES);
    for (int i = 0; i < COPIES; i++)
        sg_torch_sent_freed(BLOCK_AT(i));
    assert_int_equal(fake.puts, COPIES + 2);
    assert_int_equal(atomic_load(&sg_torch_sent_copies), 0);
}

/* Statistics. What PyTorch calls a family has three counts of four numbers each: of all, the small and the large pool. */
enum { CURRENT, PEAK, ALLOCATED, FREED, NUMBERS };
enum { ALLOCATION, SEGMENT, ACTIVE, SPLIT, ALLOCATED_BYTES, RESERVED_BYTES, ACTIVE_BYTES, SPLIT_BYTES, REQUESTED_BYTES,
    FAMILIES };
/* Behind the families: retries, failures, eight numbers about oversize blocks, waits, and the driver's calls. */
enum { RETRIES_AT = 0, OOMS_AT = 1, SYNCS_AT = 10, DEVICE_ALLOCS_AT = 11, DEVICE_FREES_AT = 12, MORE_ROOM = 2 };
typedef int64_t statistics[FAMILIES + MORE_ROOM][3][NUMBERS];

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

#define TEST(name) cmocka_unit_test_setup(name, start_afresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensor_moves_to_a_block_of_the_cache),
        TEST(only_that_tensor_moves),
        TEST(tensor_stays_where_it_cannot_move),
        TEST(idle_memory_makes_room_for_it),
        TEST(each_copy_goes_with_its_block),
        TEST(copies_beyond_the_table_are_given_back),
        TEST(nothing_is_added_where_nothing_is_known),
        TEST(levels_and_totals_are_added_to_all_and_large),
        TEST(retries_and_calls_of_the_driver_are_added),
        TEST(counts_stand_around_a_map),
        TEST(segments_of_the_cache_are_no_tensors),
        TEST(peaks_are_without_segments),
        TEST(memory_beyond_the_core_adds_to_peaks),
        TEST(peaks_of_bytes_are_no_sums),
        TEST(segments_are_found_beside_each_other),
        TEST(totals_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
