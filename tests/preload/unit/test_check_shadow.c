/* The shadow of freed memory by itself: pieces follow their page to another address, go with it, and are cut where a
   block takes part of them; and the words that are expected where. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "check/shadow.h"

enum { PAGE = 4 << 20, A = 64 << 20, B = 128 << 20, HANDLE = 7 };

static struct sg_freed *freed_at(struct sg_shadow *shadow, CUdeviceptr base, uint64_t room)
{
    struct sg_freed *freed = sg_shadow_freed(shadow);
    assert_non_null(freed);
    freed->base = base;
    sg_fill_plan(room, true, false, base, &freed->fill);
    sg_shadow_put(shadow, freed);
    return freed;
}

static void page_moves(void **state)
{
    static struct sg_shadow shadow;
    struct sg_part part[4];
    uint64_t done;
    (void)state;
    assert_true(sg_shadow_begin(&shadow));
    sg_shadow_created(&shadow, HANDLE, PAGE);
    sg_shadow_mapped(&shadow, A, PAGE, 0, HANDLE);
    struct sg_freed *freed = freed_at(&shadow, A + 4096, 3 << 20); /* over both chunks of the page */
    assert_int_equal(freed->refs, 3);
    sg_shadow_unmapped(&shadow, A, PAGE);
    assert_null(sg_shadow_at(&shadow, A + 4096));
    sg_shadow_mapped(&shadow, B, PAGE, 0, HANDLE);
    assert_int_equal(sg_shadow_take(&shadow, B + 4608, 2048, part, 4, 4, &done), 1);
    assert_ptr_equal(part[0].freed, freed);
    assert_int_equal(part[0].offset, 512);
    assert_int_equal(part[0].address, B + 4608);
    assert_int_equal(part[0].bytes, 2048);
    sg_shadow_unref(&shadow, freed);
    assert_int_equal(sg_shadow_take(&shadow, B + 4608, 2048, part, 4, 4, &done), 0); /* it is the next owner's */
    struct sg_freed *left = sg_shadow_at(&shadow, B + 4096);
    assert_ptr_equal(left, freed);
    sg_shadow_unref(&shadow, left);
    sg_shadow_released(&shadow, HANDLE);
    sg_shadow_unmapped(&shadow, B, PAGE);
    assert_int_equal(freed->refs, 1); /* the page has gone with its pieces */
    sg_shadow_unref(&shadow, freed);
    assert_int_equal(shadow.held, 0);
}

static void segment_goes(void **state)
{
    static struct sg_shadow shadow;
    struct sg_part part[4];
    uint64_t done;
    (void)state;
    assert_true(sg_shadow_begin(&shadow));
    sg_shadow_segment(&shadow, A, PAGE);
    struct sg_freed *first = freed_at(&shadow, A, 1024), *second = freed_at(&shadow, A + 1024, 2048);
    unsigned stamps;
    assert_true(sg_shadow_ends_at(&shadow, A + 3072, &stamps));
    assert_false(sg_shadow_ends_at(&shadow, A + 3071, &stamps));
    assert_int_equal(sg_shadow_take(&shadow, A + 512, 1024, part, 1, 4, &done), 1); /* there is room for no more */
    assert_int_equal(done, 512);
    assert_ptr_equal(part[0].freed, first);
    assert_int_equal(part[0].bytes, 512);
    sg_shadow_unref(&shadow, first);
    sg_shadow_segment_gone(&shadow, A);
    assert_int_equal(first->refs, 1);
    assert_int_equal(second->refs, 1);
}

enum { MANY = 128 };

/* Pages of a block of 256 MiB stand at `order`. All filled bytes of it are in the parts, however many pages it has. */
static void take_all(unsigned step, size_t most)
{
    static struct sg_shadow shadow;
    struct sg_part part[64];
    uint64_t done, filled = 0, room = (uint64_t)MANY * (2 << 20);
    uint32_t word;
    shadow = (struct sg_shadow){.begun = false};
    assert_true(sg_shadow_begin(&shadow));
    for (uint64_t i = 0; i < MANY; i++) {
        sg_shadow_created(&shadow, HANDLE + i, 2 << 20);
        sg_shadow_mapped(&shadow, A + (i << 21), 2 << 20, 0, HANDLE + i);
    }
    struct sg_freed *freed = freed_at(&shadow, A, room);
    for (uint64_t i = 0; i < MANY; i++)
        sg_shadow_unmapped(&shadow, A + (i << 21), 2 << 20);
    for (uint64_t i = 0; i < MANY; i++)
        sg_shadow_mapped(&shadow, (UINT64_C(1) << 40) + (i << 21), 2 << 20, 0, HANDLE + i * step % MANY);
    size_t count = sg_shadow_take(&shadow, UINT64_C(1) << 40, room, part, 64, 1, &done);
    assert_true(count <= most);
    assert_int_equal(done, room);
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < part[i].bytes; at += 4)
            filled += 4 * (sg_fill_expected(&freed->fill, part[i].offset + at, &word) != 0);
    assert_int_equal(filled, (SG_WINDOWS + 1) * SG_WINDOW + SG_TAIL);
    assert_null(sg_shadow_at(&shadow, (UINT64_C(1) << 40) + room - 4));
}

static void block_of_many_pages(void **state)
{
    (void)state;
    take_all(1, 1);
    take_all(27, 16); /* a window may lie on two pages */
}

/* Where windows begin, end and are cut. */
static void reach_of_a_fill(void **state)
{
    struct sg_fill fill = {.place = 0};
    (void)state;
    sg_fill_plan((8 << 20) + SG_TAIL, true, false, 5, &fill);
    for (uint64_t at = 0; at < fill.room; at += 508) {
        uint32_t word;
        bool any = false;
        for (uint64_t i = at; i < at + 508 && i < fill.room; i += 4)
            any |= sg_fill_expected(&fill, i, &word) != 0;
        assert_int_equal(sg_fill_reaches(&fill, at, at + 508 < fill.room ? 508 : fill.room - at), any);
    }
}

static void words_of_a_fill(void **state)
{
    struct sg_fill fill = {.place = 0};
    uint32_t word, count = 0;
    (void)state;
    sg_fill_plan((8 << 20) + SG_TAIL, true, false, 5, &fill);
    assert_false(fill.whole);
    for (uint64_t at = 0; at < fill.room; at += 4)
        count += sg_fill_expected(&fill, at, &word) == UINT32_MAX;
    assert_int_equal(count, ((SG_WINDOWS + 1) * SG_WINDOW + SG_TAIL) / 4);
    assert_true(fill.first + (fill.windows - 1) * fill.pitch + SG_WINDOW <= fill.room - SG_TAIL - SG_WINDOW);
    sg_fill_plan(1536, true, false, 6, &fill);
    fill.has_body = false;
    fill.stamps = UINT64_C(1) << 5 | UINT64_C(1) << 4;
    assert_int_equal(sg_fill_expected(&fill, 0, &word), 0);
    assert_int_equal(sg_fill_expected(&fill, 1024, &word), UINT32_MAX);
    assert_int_equal(word, sg_pattern_word(6));
    assert_int_equal(sg_fill_expected(&fill, 1152 + 8, &word), UINT32_MAX);
    assert_int_equal(word, sg_pattern_stamp(fill.word, 4) | (uint32_t)sg_pattern_stamp(fill.word, 5) << 16);
    assert_int_equal(sg_fill_expected(&fill, 1152 + 12, &word), 0);
    fill.place = 1;
    assert_int_equal(sg_fill_stamp_at(&fill, 5), 1152 + 128 + 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_moves),
        cmocka_unit_test(segment_goes),
        cmocka_unit_test(block_of_many_pages),
        cmocka_unit_test(reach_of_a_fill),
        cmocka_unit_test(words_of_a_fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
