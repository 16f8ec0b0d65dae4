/* Blocks that begin and end in pages of others: when they do, what is mapped where, that the parts go home, and when
   nothing is lent. Six blocks of 3 MiB stand in nine pages; what the second and the fifth leave is two whole pages and
   half of two others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core.h"
#include "device.h"
#include "inspect.h"
#include "strict_driver.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { BLOCKS = 6 };

static CUresult try_allocate(struct sg_core *core, sg_slot slot, uint64_t bytes, CUdeviceptr *ret)
{
    const struct sg_tag tag = {.slot = slot};
    if (slot)
        sg_core_slot_touched(core, 0, slot);
    CUresult result = sg_core_malloc(core, 0, bytes, &tag, ret);
    inspect(core, 1);
    return result;
}

static CUdeviceptr allocate(struct sg_core *core, sg_slot slot, uint64_t bytes)
{
    CUdeviceptr address;
    assert_int_equal(try_allocate(core, slot, bytes, &address), CUDA_SUCCESS);
    return address;
}

static void release(struct sg_core *core, sg_slot slot, CUdeviceptr address)
{
    const struct sg_tag tag = {.slot = slot, .sync = slot ? SG_FREE_SYNC_STREAM : SG_FREE_SYNC_STRICT};
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    inspect(core, 1);
}

static uint64_t value(struct sg_core *core, enum sg_stat stat)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[stat];
}

static void stop(struct sg_core *core)
{
    const char *what;
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    if (strict_broken(&what))
        fail_msg("a rule of the driver was broken: %s", what);
    assert_int_equal(strict_leaks(), 0);
}

static void make_parts(struct sg_core *core, sg_slot slot, CUdeviceptr *block)
{
    for (int i = 0; i < BLOCKS; i++)
        block[i] = allocate(core, slot, MIB(3));
    release(core, slot, block[1]);
    release(core, slot, block[4]);
}

static void test_block_begins_and_ends_in_pages_of_others(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    CUdeviceptr block[BLOCKS];
    make_parts(core, 0, block);
    CUdeviceptr sewn = allocate(core, 0, MIB(6));
    assert_int_equal(value(core, SG_STAT_reserved_bytes), MIB(18));
    assert_int_equal(value(core, SG_STAT_sewn_pages), 2);
    assert_int_equal(value(core, SG_STAT_pages_moved), 2);
    assert_int_equal(sewn % MIB(2), MIB(1));
    assert_int_equal(strict_mapped(sewn - MIB(1), MIB(2)), strict_mapped(block[0] + MIB(2), MIB(2)));
    assert_int_equal(strict_mapped(sewn + MIB(5), MIB(2)), strict_mapped(block[5] - MIB(1), MIB(2)));
    /* Those who were there go, and the block stays: its ends are the pages' only users. */
    release(core, 0, block[0]);
    release(core, 0, block[5]);
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(4));
    release(core, 0, sewn);
    /* All that is free is wanted in one piece. */
    CUdeviceptr all = allocate(core, 0, MIB(12));
    assert_int_equal(value(core, SG_STAT_aliased_bytes), 0);
    assert_int_equal(value(core, SG_STAT_late_unmaps), 2);
    assert_int_equal(value(core, SG_STAT_reserved_bytes), MIB(18));
    release(core, 0, all);
    stop(core);
}

/* A card that is full is enough with the parts, and too small without. */
static void test_last_bytes_of_a_card(void **state)
{
    (void)state;
    for (int lend = 0; lend < 2; lend++) {
        struct sg_core *core = inspect_start(lend ? "limit:18MiB" : "limit:18MiB,alias:False", MIB(512));
        CUdeviceptr block[BLOCKS], sewn;
        make_parts(core, 0, block);
        assert_int_equal(try_allocate(core, 0, MIB(6), &sewn), lend ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(value(core, SG_STAT_sewn_pages), lend ? 2 : 0);
        stop(core);
    }
}

/* Whoever has made many allocations can pay for a block that saves one of the last pages of a card. */
static void test_last_pages_are_saved(void **state)
{
    (void)state;
    enum { EARNED = 400 };
    for (int paid = 0; paid < 2; paid++) {
        struct sg_core *core = inspect_start("limit:20MiB", MIB(512));
        CUdeviceptr block[BLOCKS];
        for (int i = 0; paid && i < EARNED; i++)
            release(core, 0, allocate(core, 0, MIB(3)));
        make_parts(core, 0, block);
        (void)allocate(core, 0, MIB(6));
        assert_int_equal(value(core, SG_STAT_sewn_pages), paid ? 2 : 0);
        assert_int_equal(value(core, SG_STAT_reserved_bytes), paid ? MIB(18) : MIB(20));
        stop(core);
    }
}

/* On a full card a block of a crowd, which has a region of its own, is served by what others have left, too. */
static void test_crowd_takes_what_others_left(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("limit:1GiB,alias:False", MIB(2048));
    CUdeviceptr rest;
    enum { CROWD = 20 };
    (void)allocate(core, 0, MIB(460));
    (void)allocate(core, 0, MIB(460));
    (void)allocate(core, 0, MIB(1));
    CUdeviceptr between = allocate(core, 0, MIB(7) / 4);
    (void)allocate(core, 0, MIB(1));
    for (int i = 0; i < CROWD; i++)
        (void)allocate(core, 0, MIB(3) / 2);
    while (try_allocate(core, 0, MIB(3) / 2, &rest) == CUDA_SUCCESS) {
    }
    release(core, 0, between);
    assert_int_equal(try_allocate(core, 0, MIB(3) / 2, &rest), CUDA_SUCCESS);
    assert_int_equal(try_allocate(core, 0, MIB(3) / 2, &rest), CUDA_ERROR_OUT_OF_MEMORY);
    stop(core);
}

/* One that stood among others before it was one of a crowd is renewed where it was: in the first region, too. */
static void test_crowd_is_renewed_in_place(void **state)
{
    (void)state;
    enum { CROWD = 40 };
    struct sg_core *core = inspect_start("limit:1GiB", MIB(2048));
    CUdeviceptr block[CROWD];
    (void)allocate(core, 0, MIB(460));
    (void)allocate(core, 0, MIB(460));
    assert_int_equal(core->device[0]->region_class[0], SG_CLASS_REGULAR);
    for (int i = 0; i < CROWD; i++)
        block[i] = allocate(core, 0, MIB(3) / 2);
    const struct sg_region *first = core->device[0]->region[0];
    assert_true(block[1] - first->base < first->reserved);
    assert_false(block[CROWD - 1] - first->base < first->reserved);
    release(core, 0, block[1]);
    assert_int_equal(allocate(core, 0, MIB(3) / 2), block[1]);
    stop(core);
}

/* Where there are no addresses for a region of their own, a crowd's blocks stand among the others. */
static CUresult no_addresses(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    (void)ret;
    (void)bytes;
    (void)alignment;
    (void)hint;
    (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void test_crowd_without_addresses(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("limit:1GiB", MIB(2048));
    struct sg_driver driver = strict_driver;
    CUdeviceptr rest;
    enum { CROWD = 20 };
    (void)allocate(core, 0, MIB(460));
    (void)allocate(core, 0, MIB(460));
    uint32_t regions = core->device[0]->region_count;
    driver.address_reserve = no_addresses;
    core->driver = &driver;
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(try_allocate(core, 0, MIB(3), &rest), CUDA_SUCCESS);
    assert_int_equal(core->device[0]->region_count, regions);
    core->driver = &strict_driver;
    stop(core);
}

/* Nothing is lent where there would be more old addresses than there may be: both parts will leave one. */
static void test_as_many_old_addresses_as_there_may_be(void **state)
{
    (void)state;
    for (unsigned room = 1; room <= 2; room++) {
        struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
        const struct sg_tag tag = {.sync = SG_FREE_SYNC_AUTO};
        CUdeviceptr block[BLOCKS], next;
        make_parts(core, 0, block);
        struct sg_gauge *aliased = &core->device[0]->usage.aliased;
        const uint64_t others = 16 * MIB(512) - room * MIB(2);
        aliased->now += others;
        assert_int_equal(sg_core_malloc(core, 0, MIB(6), &tag, &next), CUDA_SUCCESS);
        aliased->now -= others;
        inspect(core, 1);
        assert_int_equal(value(core, SG_STAT_sewn_pages), room == 2 ? 2 : 0);
        stop(core);
    }
}

/* Nor is a page that has as many of them as one may have. */
static void test_page_with_as_many_addresses_as_there_may_be(void **state)
{
    (void)state;
    enum { MOST = 32 };
    for (uint8_t others = MOST - 1; others <= MOST; others++) {
        struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
        const struct sg_tag tag = {.sync = SG_FREE_SYNC_AUTO};
        CUdeviceptr block[BLOCKS], next;
        make_parts(core, 0, block);
        struct sg_region *region = core->device[0]->region[0];
        uint8_t *pins[2] = {&region->pin[(block[0] + MIB(2) - region->base) / MIB(2)],
            &region->pin[(block[5] - region->base) / MIB(2)]};
        for (int i = 0; i < 2; i++)
            *pins[i] += others * SG_PIN_TWICE;
        assert_int_equal(sg_core_malloc(core, 0, MIB(6), &tag, &next), CUDA_SUCCESS);
        for (int i = 0; i < 2; i++)
            *pins[i] -= others * SG_PIN_TWICE;
        assert_int_equal(value(core, SG_STAT_sewn_pages), others == MOST ? 0 : 2);
        stop(core);
    }
}

/* Part of a block's place is used again: it can't go home before that is free too. */
static void test_part_goes_home_whole(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    CUdeviceptr block[BLOCKS];
    make_parts(core, 0, block);
    release(core, 0, allocate(core, 0, MIB(6)));
    CUdeviceptr left = allocate(core, 0, MIB(6) - MIB(1) / 2);
    (void)allocate(core, 0, MIB(8));
    assert_int_equal(value(core, SG_STAT_late_unmaps), 0);
    release(core, 0, left);
    (void)allocate(core, 0, MIB(16));
    assert_int_equal(value(core, SG_STAT_late_unmaps), 2);
    stop(core);
}

static uint64_t sewn_when(const char *conf, void (*arrange)(struct sg_core *core, const CUdeviceptr *block),
    uint64_t asker)
{
    struct sg_core *core = inspect_start(conf, MIB(512));
    sg_slot slot[3] = {0};
    for (uint64_t key = 1; key < 3; key++)
        slot[key] = sg_core_slot(core, 0, &(struct sg_stream_id){.key = key});
    CUdeviceptr block[BLOCKS];
    make_parts(core, slot[1], block);
    if (arrange)
        arrange(core, block);
    (void)allocate(core, slot[asker], MIB(6));
    uint64_t pages = value(core, SG_STAT_sewn_pages);
    stop(core);
    return pages;
}

static void pin_both(struct sg_core *core, const CUdeviceptr *block)
{
    sg_core_pin(core, block[0] + MIB(2), 1);
    sg_core_pin(core, block[5], 1);
}

static void capture(struct sg_core *core, const CUdeviceptr *block)
{
    (void)core;
    (void)block;
    inspect_capturing = true;
}

static void complete(struct sg_core *core, const CUdeviceptr *block)
{
    (void)block;
    sg_core_poll(core, 0);
    strict_complete(UINT32_MAX);
    sg_core_poll(core, 0);
}

static void test_who_is_lent_what(void **state)
{
    (void)state;
    const char *tight = "reserve_slack:1.0";
    assert_int_equal(sewn_when(tight, NULL, 1), 2);     /* the stream that freed it, though its work is not complete */
    assert_int_equal(sewn_when(tight, NULL, 2), 0);     /* another has not come after that */
    assert_int_equal(sewn_when(tight, complete, 2), 2);
    assert_int_equal(sewn_when(tight, pin_both, 1), 0); /* somebody remembers those pages */
    assert_int_equal(sewn_when(tight, capture, 1), 0);  /* no event can be recorded that would tell when they are
                                                           complete */
    assert_int_equal(sewn_when("reserve_slack:1.0,alias:False", NULL, 1), 0);
    assert_int_equal(sewn_when("", NULL, 1), 0);        /* there is room */
}

/* A block of 9 MiB has gone, whose whole pages were moved at once: what it had of another page lies beside its old
   addresses. The next of its size begins there all the same, although idle pages are plenty: elsewhere, as it would in
   place. */
static void test_old_addresses_are_not_in_the_way(void **state)
{
    (void)state;
    enum { GAPS = 16 };
    for (int done = 0; done < 2; done++) {
        struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
        sg_slot slot = sg_core_slot(core, 0, &(struct sg_stream_id){.key = 1});
        CUdeviceptr gap[GAPS];
        (void)allocate(core, slot, MIB(11));
        CUdeviceptr first = allocate(core, slot, MIB(9));
        for (int i = 0; i < GAPS; i++) {
            (void)allocate(core, slot, MIB(2));
            gap[i] = allocate(core, slot, MIB(4));
        }
        (void)allocate(core, slot, MIB(2));
        release(core, slot, first);
        (void)allocate(core, slot, MIB(12));
        assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(8));
        for (int i = 0; i < GAPS; i++)
            release(core, slot, gap[i]);
        if (done)
            complete(core, NULL);
        CUdeviceptr next = allocate(core, slot, MIB(9));
        assert_int_equal(value(core, SG_STAT_sewn_pages), !done);
        assert_int_equal(next == first, done);
        assert_int_equal(value(core, SG_STAT_host_waits), 0);
        stop(core);
    }
}

/* A part whose address somebody remembers stays where it is; and so does every part while there are no nodes. */
static void test_parts_that_stay_away(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
        struct sg_nodes *nodes = NULL;
        CUdeviceptr block[BLOCKS];
        make_parts(core, 0, block);
        CUdeviceptr sewn = allocate(core, 0, MIB(6));
        nodes = &core->device[0]->nodes;
        assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(4));
        if (pinned)
            sg_core_pin(core, sewn, MIB(6));
        release(core, 0, sewn);
        uint32_t live = nodes->live;
        if (!pinned)
            nodes->live = nodes->capacity - 500;
        assert_int_equal(sg_core_trim(core, 0, 0), 0);
        nodes->live = live;
        assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(4));
        inspect(core, 1);
        (void)sg_core_trim(core, 0, 0);
        assert_int_equal(value(core, SG_STAT_aliased_bytes), pinned ? MIB(4) : 0);
        inspect(core, 1);
        stop(core);
    }
}

/* What is left of a part that is used again is lent to nobody: its page is another's. */
static void test_part_is_not_lent_twice(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    CUdeviceptr block[BLOCKS], low, sewn;
    make_parts(core, 0, block);
    sewn = allocate(core, 0, MIB(6));
    release(core, 0, sewn);
    low = allocate(core, 0, MIB(6) - MIB(1) / 2); /* from one end of it */
    assert_true(low == sewn || low == sewn + MIB(1) / 2);
    for (int i = 0; i < 4; i++)
        (void)allocate(core, 0, MIB(5) / 2);
    inspect(core, 1);
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(4));
    stop(core);
}

/* Nor is what a smaller block has left of it at the end of a page that is another's. */
static void test_rest_of_a_part_is_not_lent(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    CUdeviceptr block[BLOCKS], low, sewn;
    make_parts(core, 0, block);
    sewn = allocate(core, 0, MIB(6));
    release(core, 0, sewn);
    low = allocate(core, 0, MIB(1) / 2);
    assert_int_equal(low, sewn);
    for (int i = 0; i < 4; i++)
        (void)allocate(core, 0, MIB(6));
    assert_int_equal(strict_mapped(sewn - MIB(1), MIB(2)), strict_mapped(block[0] + MIB(2), MIB(2)));
    stop(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_begins_and_ends_in_pages_of_others),
        cmocka_unit_test(test_last_bytes_of_a_card),
        cmocka_unit_test(test_last_pages_are_saved),
        cmocka_unit_test(test_crowd_takes_what_others_left),
        cmocka_unit_test(test_crowd_is_renewed_in_place),
        cmocka_unit_test(test_as_many_old_addresses_as_there_may_be),
        cmocka_unit_test(test_page_with_as_many_addresses_as_there_may_be),
        cmocka_unit_test(test_part_goes_home_whole),
        cmocka_unit_test(test_who_is_lent_what),
        cmocka_unit_test(test_old_addresses_are_not_in_the_way),
        cmocka_unit_test(test_crowd_without_addresses),
        cmocka_unit_test(test_parts_that_stay_away),
        cmocka_unit_test(test_part_is_not_lent_twice),
        cmocka_unit_test(test_rest_of_a_part_is_not_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
