/* What a device's addresses hold piece by piece, where peaks begin, and limits that change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "size.h"
#include "strict_driver.h"

enum { TOTAL = 64 * SG_MIB, PIECES = 64 };

static struct sg_core *core;
static struct sg_piece piece[PIECES];
static size_t pieces;

static int start(void **state)
{
    (void)state;
    core = inspect_start("", TOTAL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    return strict_leaks() ? -1 : 0;
}

static CUdeviceptr allocate(size_t bytes, const struct sg_tag *tag)
{
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, tag, &address), CUDA_SUCCESS);
    return address;
}

static void look(void)
{
    pieces = sg_core_pieces(core, 0, piece, PIECES);
    assert_true(pieces <= PIECES);
}

static const struct sg_piece *piece_at(CUdeviceptr address)
{
    for (size_t i = 0; i < pieces; i++)
        if (piece[i].address == address)
            return &piece[i];
    fail_msg("no piece begins at 0x%llx", (unsigned long long)address);
    return NULL;
}

static void expect(CUdeviceptr address, enum sg_piece_state state, uint64_t requested, uintptr_t stream)
{
    const struct sg_piece *found = piece_at(address);
    assert_int_equal(found->state, state);
    assert_int_equal(found->requested, requested);
    assert_ptr_equal(found->stream, (CUstream)stream);
}

/* Blocks for a stream that is followed, for one that was named, and for none; what is pending; and what is free. */
static void pieces_have_states_and_streams(void **state)
{
    (void)state;
    const struct sg_stream_id id = {.key = 7, .handle = (CUstream)0x70};
    const struct sg_tag by_slot = {.slot = sg_core_slot(core, 0, &id), .sync = SG_FREE_SYNC_EVENT},
                        by_name = {.has_stream = true, .stream = (CUstream)0x50, .sync = SG_FREE_SYNC_EVENT},
                        by_none = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr followed = allocate(3 * SG_MIB, &by_slot), named = allocate(1000, &by_name),
                plain = allocate(2000, &by_none), pending = allocate(5 * SG_MIB, &by_name),
                freed = allocate(4 * SG_MIB, &by_none), after = allocate(4 * SG_MIB, &by_none);
    assert_int_equal(sg_core_free(core, pending, &by_name), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, freed, &by_none), CUDA_SUCCESS);
    look();
    expect(followed, SG_PIECE_ALLOCATED, 3 * SG_MIB, 0x70);
    expect(named, SG_PIECE_ALLOCATED, 1000, 0x50);
    assert_true(piece_at(named)->small);
    expect(plain, SG_PIECE_ALLOCATED, 2000, 0);
    expect(pending, SG_PIECE_PENDING, 5 * SG_MIB, 0x50);
    expect(freed, SG_PIECE_FREE, 0, 0);
    assert_false(piece_at(after)->small);
    size_t all = pieces;
    struct sg_piece first = piece[0];
    piece[1].address = 1;
    assert_int_equal(sg_core_pieces(core, 0, piece, 1), all);
    assert_int_equal(piece[0].address, first.address);
    assert_int_equal(piece[1].address, 1);
}

/* What comes together: pieces tile what is reserved. */
static void pieces_make_up_what_is_reserved(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    struct sg_stats stats;
    uint64_t bytes = 0;
    CUdeviceptr block[6];
    for (int i = 0; i < 6; i++)
        block[i] = allocate((size_t)(i + 1) * 700 * 1024, &tag);
    for (int i = 0; i < 6; i += 2)
        assert_int_equal(sg_core_free(core, block[i], &tag), CUDA_SUCCESS);
    look();
    for (size_t i = 0; i < pieces; i++)
        bytes += piece[i].bytes;
    assert_true(sg_core_stats(core, 0, &stats));
    assert_int_equal(bytes, stats.value[SG_STAT_reserved_bytes]);
}

/* Pages that somebody remembers, as runs; addresses without memory are not among them. */
static void pinned_pages_are_marked(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    struct sg_page_mark mark[3] = {{.address = 1}, {.address = 1}, {.address = 1}};
    assert_int_equal(sg_core_page_marks(core, 0, mark, 3), 0);
    CUdeviceptr first = allocate(8 * SG_MIB, &tag), second = allocate(4 * SG_MIB, &tag);
    assert_int_equal(sg_core_page_marks(core, 0, mark, 3), 0);
    sg_core_pin(core, first + 2 * SG_MIB, 3 * SG_MIB);
    sg_core_pin(core, second, 1);
    assert_int_equal(sg_core_page_marks(core, 0, mark, 1), 2);
    assert_int_equal(mark[1].address, 1);
    assert_int_equal(sg_core_page_marks(core, 0, mark, 3), 2);
    assert_int_equal(mark[0].address, first + 2 * SG_MIB);
    assert_int_equal(mark[0].bytes, 4 * SG_MIB);
    assert_int_equal(mark[1].address, second);
    assert_int_equal(mark[1].bytes, 2 * SG_MIB);
    assert_true(mark[0].pinned && !mark[0].shared);
    sg_core_pin(core, second + 2 * SG_MIB, UINT64_MAX); /* and what has no memory yet */
    assert_int_equal(sg_core_page_marks(core, 0, mark, 3), 2);
    assert_int_equal(mark[1].bytes, 4 * SG_MIB);
    assert_int_equal(sg_core_page_marks(core, 1, mark, 3), 0);
}

/* A run ends where the marks differ. What there is no room for counts all the same, in each region. */
static void marks_of_neighbours_are_runs(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    struct sg_page_mark mark[4] = {{.address = 1}, {.address = 1}, {.address = 1}, {.address = 1}};
    CUdeviceptr block = allocate(6 * SG_MIB, &tag), small = allocate(512, &tag);
    sg_core_pin(core, block, 6 * SG_MIB);
    sg_core_pin(core, small, 1);
    struct sg_device *device = core->device[0];
    struct sg_region *region = NULL;
    for (uint32_t i = 0; i < device->regions.count; i++)
        if (device->regions.region[i]->base <= block &&
            block - device->regions.region[i]->base < (uint64_t)device->regions.region[i]->units << 9)
            region = device->regions.region[i];
    assert_non_null(region);
    uint64_t page = (block - region->base) / (2 * SG_MIB) + 1, kept = region->memory.pin[page];
    for (int i = 0; i < 2; i++) { /* the page in the middle has a second address, and is pinned or not */
        region->memory.pin[page] = (uint8_t)(SG_PIN_ALIASED | (i ? SG_PIN_ASKED : 0));
        assert_int_equal(sg_core_page_marks(core, 0, mark, 1), 4);
        assert_int_equal(mark[1].address, 1);
        assert_int_equal(sg_core_page_marks(core, 0, mark, 4), 4);
        int shared = 0, pinned = 0;
        for (int k = 0; k < 4; k++) {
            assert_int_equal(mark[k].bytes, 2 * SG_MIB);
            shared += mark[k].shared;
            pinned += mark[k].pinned;
        }
        assert_true(shared == 1 && pinned == 3 + i);
        for (int k = 1; k < 4; k++)
            mark[k].address = 1;
    }
    region->memory.pin[page] = (uint8_t)kept;
    assert_int_equal(sg_core_page_marks(core, 0, mark, 4), 2);
}

static void peaks_begin_again(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    struct sg_stats stats;
    CUdeviceptr first = allocate(10 * SG_MIB, &tag), second = allocate(20 * SG_MIB, &tag);
    assert_int_equal(sg_core_free(core, second, &tag), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) { /* what was once is not forgotten, however often they begin */
        sg_core_reset_peaks(core, 0);
        assert_true(sg_core_stats_recent(core, 0, &stats));
        assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 10 * SG_MIB);
        assert_true(sg_core_stats(core, 0, &stats));
        assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 30 * SG_MIB);
    }
    assert_int_equal(sg_core_free(core, first, &tag), CUDA_SUCCESS);
}

/* Readers of peaks do not take them from one another. */
static void peaks_are_taken(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    struct sg_stats stats;
    assert_false(sg_core_take_peaks(core, 1, &stats));
    CUdeviceptr first = allocate(10 * SG_MIB, &tag), second = allocate(20 * SG_MIB, &tag);
    assert_true(sg_core_take_peaks(core, 0, &stats));
    assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 30 * SG_MIB);
    assert_int_equal(sg_core_free(core, second, &tag), CUDA_SUCCESS);
    sg_core_reset_peaks(core, 0); /* it is another's peak that begins again here */
    assert_true(sg_core_take_peaks(core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_allocated_bytes], 10 * SG_MIB);
    assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 30 * SG_MIB);
    assert_true(sg_core_take_peaks(core, 0, &stats));
    assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 10 * SG_MIB);
    second = allocate(5 * SG_MIB, &tag);
    assert_int_equal(sg_core_free(core, second, &tag), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) { /* taken once, the peak is still that of the other readers */
        assert_true(sg_core_stats_recent(core, 0, &stats));
        assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 15 * SG_MIB);
        assert_true(sg_core_stats(core, 0, &stats));
        assert_int_equal(stats.peak[SG_STAT_allocated_bytes], 30 * SG_MIB);
        assert_true(sg_core_take_peaks(core, 0, &stats));
        assert_int_equal(stats.peak[SG_STAT_allocated_bytes], (i ? 10 : 15) * SG_MIB);
    }
    assert_int_equal(sg_core_free(core, first, &tag), CUDA_SUCCESS);
}

static void limits_change(void **state)
{
    (void)state;
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_set_limit(core, 0, UINT64_MAX), TOTAL); /* makes the device ready */
    assert_false(sg_core_is_limited(core, 0));
    CUdeviceptr block = allocate(20 * SG_MIB, &tag);
    assert_int_equal(sg_core_set_limit(core, 0, 16 * SG_MIB), 16 * SG_MIB);
    assert_true(sg_core_is_limited(core, 0));
    assert_int_equal(sg_core_limit(core, 0), 16 * SG_MIB);
    assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    sg_core_trim(core, 0, 0);
    block = allocate(3 * SG_MIB, &tag);
    inspect(core, 1);
    assert_int_equal(sg_core_set_limit(core, 0, 0), 0);
    assert_int_equal(sg_core_malloc(core, 0, 1, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sg_core_free(core, block, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_set_limit(core, 0, TOTAL), TOTAL);
    (void)allocate(50 * SG_MIB, &tag);
    inspect(core, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_have_states_and_streams, start, stop),
        cmocka_unit_test_setup_teardown(pieces_make_up_what_is_reserved, start, stop),
        cmocka_unit_test_setup_teardown(pinned_pages_are_marked, start, stop),
        cmocka_unit_test_setup_teardown(marks_of_neighbours_are_runs, start, stop),
        cmocka_unit_test_setup_teardown(peaks_begin_again, start, stop),
        cmocka_unit_test_setup_teardown(peaks_are_taken, start, stop),
        cmocka_unit_test_setup_teardown(limits_change, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
