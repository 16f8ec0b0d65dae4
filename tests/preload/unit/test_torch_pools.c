/* Pools that PyTorch allocates for, its observers, and its snapshot, with functions and vectors of C++ made up here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "segalloc/segalloc.h"
#include "torch/torch_current.h"
#include "torch/torch_cxx.h"
#include "torch/torch_observers.h"
#include "torch/torch_oom.h"
#include "torch/torch_pools.h"
#include "torch/torch_segments.h"
#include "torch/torch_snapshot.h"

static struct {
    CUstream stream;
    int device, copies;
    bool no_stream;
} fake;

static CUresult get_device(CUdevice *ret)
{
    *ret = fake.device;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.ctx_get_device = get_device};
    return &driver;
}

bool sg_torch_stream(CUstream *ret)
{
    *ret = fake.stream;
    return !fake.no_stream;
}

static bool manage(void *to, const void *from, int what)
{
    if (what == SG_CXX_CLONE)
        memcpy(to, from, 2 * sizeof(void *));
    fake.copies += what == SG_CXX_CLONE ? 1 : -1;
    return false;
}

/* A filter that accepts one stream; another that is asked meanwhile ends. */
static bool accepts_stored(const void *storage, CUstream *stream)
{
    return *(CUstream const *)storage == *stream;
}

static struct sg_cxx_function filter_of(CUstream stream)
{
    bool (*call)(const void *, CUstream *) = accepts_stored;
    struct sg_cxx_function function = {.storage = {(void *)stream}, .manager = manage};
    memcpy(&function.call, &call, sizeof call);
    return sg_cxx_function_copy(&function);
}

static const struct sg_torch_pool first = {0, 1}, second = {3, 0};

static void tensors_of_the_thread_go_to_its_pool(void **state)
{
    (void)state;
    assert_false(sg_torch_pools_seen() || sg_torch_pools_route());
    sg_torch_pools_begin(1, first, filter_of((CUstream)64));
    sg_torch_pools_begin(1, second, filter_of((CUstream)128));
    assert_true(sg_torch_pools_seen());
    assert_true(sg_torch_pools_under_way(1));
    assert_false(sg_torch_pools_under_way(0));
    for (int i = 0; i < 6; i++) {
        fake.device = i / 3;
        fake.stream = (CUstream)(uintptr_t)(64 * (i % 3));
        assert_int_equal(sg_torch_pools_route(), i > 3);
    }
    fake.stream = NULL;
    fake.no_stream = true; /* it can't be told */
    assert_true(sg_torch_pools_route());
    fake.no_stream = false;
    fake.stream = (CUstream)64;
    fake.device = 1;
    sg_torch_pools_end(0, first); /* another device's */
    assert_true(sg_torch_pools_route());
    sg_torch_pools_end(1, first);
    assert_false(sg_torch_pools_route());
    fake.stream = (CUstream)128;
    assert_true(sg_torch_pools_route());
    sg_torch_pools_end(1, second);
    sg_torch_pools_end(1, second);
    assert_false(sg_torch_pools_route() || sg_torch_pools_under_way(1));
    assert_int_equal(fake.copies, 0);
    assert_true(sg_torch_pools_seen());
}

/* Nested: the pool is begun twice, and ended twice. */
static void a_pool_ends_as_often_as_it_begins(void **state)
{
    (void)state;
    fake.stream = (CUstream)64;
    sg_torch_pools_begin(1, first, filter_of((CUstream)64));
    sg_torch_pools_begin(1, first, filter_of((CUstream)64));
    sg_torch_pools_end(1, first);
    assert_true(sg_torch_pools_route());
    sg_torch_pools_end(1, first);
    assert_false(sg_torch_pools_route());
}

/* More at a time than are followed: everything is taken for theirs until enough have ended. */
static void pools_beyond_the_table_take_everything(void **state)
{
    enum { MANY = 300, TABLE = 256 };
    (void)state;
    fake.stream = (CUstream)256;
    for (uint64_t i = 0; i < MANY; i++) {
        sg_torch_pools_begin(1, (struct sg_torch_pool){9, i}, filter_of((CUstream)64));
        assert_int_equal(sg_torch_pools_route(), i >= TABLE);
    }
    for (uint64_t i = MANY; i-- > 0;)
        sg_torch_pools_end(1, (struct sg_torch_pool){9, i});
    assert_false(sg_torch_pools_route());
    assert_int_equal(fake.copies, 0);
}

static struct {
    int64_t device;
    size_t bytes, total, free;
    int calls;
} seen;

static void observe(const void *storage, int64_t *device, size_t *bytes, size_t *total, size_t *free_bytes)
{
    assert_int_equal(*(const uintptr_t *)storage, 5);
    seen.device = *device;
    seen.bytes = *bytes;
    seen.total = *total;
    seen.free = *free_bytes;
    seen.calls++;
}

static void observers_hear_what_the_cache_would_ask_for(void **state)
{
    static const size_t sizes[][2] = {{1, 2 << 20}, {1 << 20, 2 << 20}, {(1 << 20) + 1, 20 << 20}, {(10 << 20) - 1, 20 << 20},
        {10 << 20, 10 << 20}, {(300 << 20) + 1, 302 << 20}, {SIZE_MAX, SIZE_MAX}};
    void (*call)(const void *, int64_t *, size_t *, size_t *, size_t *) = observe;
    struct sg_cxx_function function = {.storage = {(void *)5}, .manager = manage};
    (void)state;
    sg_torch_observers_call(0, 1, 2, 3);
    assert_int_equal(seen.calls, 0);
    memcpy(&function.call, &call, sizeof call);
    sg_torch_observers_add(function);
    sg_torch_observers_add((struct sg_cxx_function){.manager = NULL}); /* empty */
    sg_torch_observers_add(function);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        seen.calls = 0;
        sg_torch_observers_call(3, sizes[i][0], 7, 9);
        assert_int_equal(seen.calls, 2);
        assert_int_equal(seen.bytes, sizes[i][1]);
        assert_true(seen.device == 3 && seen.total == 7 && seen.free == 9);
    }
}

/* Of device 1: a segment of three pieces, PyTorch's own, and one more beside it; the last stands apart. */
static const struct segalloc_piece pieces[] = {
    {0x1000000, 512, 500, 64, SEGALLOC_PIECE_ALLOCATED, 0},
    {0x1000200, 1024, 1000, 0, SEGALLOC_PIECE_PENDING, 0},
    {0x1000600, 2048, 0, 0, SEGALLOC_PIECE_FREE, 0},
    {0x1000e00, 2 << 20, 2 << 20, 0, SEGALLOC_PIECE_ALLOCATED, 0},
    {0x1200e00, 512, 1, 0, SEGALLOC_PIECE_ALLOCATED, 0},
    {0x2000000, 512, 2, 0, SEGALLOC_PIECE_ALLOCATED, 1},
};
enum { PIECES = sizeof pieces / sizeof *pieces };

size_t segalloc_pieces(int device, struct segalloc_piece *ret, size_t room)
{
    if (device != 1)
        return 0;
    for (size_t i = 0; i < PIECES && i < room; i++)
        ret[i] = pieces[i];
    return PIECES;
}

void *sg_torch_new(size_t bytes)
{
    return malloc(bytes);
}

void sg_torch_delete(void *memory)
{
    free(memory);
}

struct vector {
    char *begin, *end, *limit;
};

static uint64_t word(const char *object, size_t at)
{
    uint64_t value;
    memcpy(&value, object + at, sizeof value);
    return value;
}

/* Offsets are those of SegmentInfo and BlockInfo. */
static void snapshot_has_what_is_served_here(void **state)
{
    enum { SEGMENT = 120, BLOCK = 40, ADDRESS = 8, TOTAL = 16, REQUESTED = 24, ALLOCATED = 32, ACTIVE = 40, STREAM = 48, LARGE = 56,
        BLOCKS = 80 };
    static const uint64_t wanted[][5] = {
        {0x1000000, 3584, 500, 512, 1536}, {0x1200e00, 512, 1, 512, 512}, {0x2000000, 512, 2, 512, 512}};
    struct vector segments = {0};
    (void)state;
    char *theirs = segments.begin = malloc(SEGMENT);
    memset(theirs, 7, SEGMENT);
    segments.end = segments.limit = theirs + SEGMENT;
    fake.device = 1;
    atomic_store(&sg_torch_segments_seen, true);
    sg_torch_segment_made((const void *)(uintptr_t)0x1000e00, 2 << 20);
    sg_torch_snapshot_add(&segments);
    assert_int_equal(segments.end - segments.begin, 4 * SEGMENT);
    assert_int_equal(word(segments.begin, 100), word("\7\7\7\7\7\7\7\7", 0)); /* what PyTorch has said stays */
    for (int i = 0; i < 3; i++) {
        const char *segment = segments.begin + (i + 1) * SEGMENT;
        assert_int_equal(*segment, 1);
        for (int k = 0; k < 5; k++)
            assert_int_equal(word(segment, ADDRESS + 8 * (size_t)k), wanted[i][k]);
        assert_int_equal(word(segment, STREAM), i == 0 ? 64 : 0);
        assert_int_equal(segment[LARGE], i != 2);
        struct vector blocks;
        memcpy(&blocks, segment + BLOCKS, sizeof blocks);
        assert_int_equal(blocks.end - blocks.begin, (i == 0 ? 3 : 1) * BLOCK);
        assert_int_equal(blocks.begin[20], 1);
        if (i == 0) /* pending, then free: allocated and active */
            assert_true(!blocks.begin[BLOCK + 20] && blocks.begin[BLOCK + 21] && !blocks.begin[2 * BLOCK + 21]);
        free(blocks.begin);
    }
    free(segments.begin);
    assert_true(sg_torch_segment_gone((const void *)(uintptr_t)0x1000e00));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_the_thread_go_to_its_pool),
        cmocka_unit_test(a_pool_ends_as_often_as_it_begins),
        cmocka_unit_test(pools_beyond_the_table_take_everything),
        cmocka_unit_test(observers_hear_what_the_cache_would_ask_for),
        cmocka_unit_test(snapshot_has_what_is_served_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
