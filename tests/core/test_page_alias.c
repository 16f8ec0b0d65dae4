/* Who gets pages at a second address, and who does not: pinned pages, captures, streams that have not waited, peers;
   and how many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "rooms.h"
#include "core/core.h"
#include "inspect/core_state.h"
#include "inspect.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)

static sg_slot stream(struct sg_core *core, uint64_t key)
{
    const struct sg_stream_id id = {.key = key};
    return sg_core_slot(core, 0, &id);
}

static CUdeviceptr allocate(struct sg_core *core, sg_slot slot, uint64_t bytes)
{
    const struct sg_tag tag = {.slot = slot};
    CUdeviceptr address;
    sg_core_slot_submitted(core, 0, slot);
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    inspect(core, 1);
    return address;
}

static void release(struct sg_core *core, sg_slot slot, CUdeviceptr address)
{
    const struct sg_tag tag = {.slot = slot, .sync = SG_FREE_SYNC_STREAM};
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
    strict_complete(UINT32_MAX);
    sg_core_destroy(core);
    strict_expect_over();
}

/* Blocks of 8 MiB, every other of which is freed by `slot`: nowhere is there room for more than that in one piece. */
static void make_gaps(struct sg_core *core, sg_slot slot, CUdeviceptr *block, int count)
{
    for (int i = 0; i < count; i++)
        block[i] = allocate(core, slot, MIB(8));
    for (int i = 0; i < count; i += 2)
        release(core, slot, block[i]);
}

static void test_old_address_stays_until_work_is_done(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    sg_slot slot = stream(core, 1);
    CUdeviceptr block[8];
    make_gaps(core, slot, block, 8);
    assert_false(sg_core_take_aliased(core, 0, slot));
    CUdeviceptr large = allocate(core, slot, MIB(16));
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(16));
    assert_int_equal(value(core, SG_STAT_reserved_bytes), MIB(64));
    assert_false(sg_core_take_aliased(core, 0, slot + 1) || sg_core_take_aliased(core, 1, slot));
    assert_true(sg_core_take_aliased(core, 0, slot));
    assert_false(sg_core_take_aliased(core, 0, slot));
    unsigned old = 0;
    for (int i = 0; i < 8; i += 2)
        for (uint64_t at = 0; at < MIB(8); at += MIB(2))
            for (uint64_t to = 0; to < MIB(16); to += MIB(2))
                old += strict_mapped(block[i] + at, MIB(2)) == strict_mapped(large + to, MIB(2));
    assert_int_equal(old, 8);
    release(core, slot, large);
    CUdeviceptr larger = allocate(core, slot, MIB(24)); /* what has an old address stays where it is */
    assert_true(value(core, SG_STAT_aliased_bytes) <= MIB(32));
    strict_complete(UINT32_MAX);
    (void)allocate(core, slot, MIB(40));
    assert_int_equal(value(core, SG_STAT_aliased_bytes), 0);
    assert_int_equal(value(core, SG_STAT_late_unmaps), value(core, SG_STAT_aliased_pages));
    assert_int_equal(value(core, SG_STAT_host_waits), 0);
    release(core, slot, larger);
    stop(core);
}

static uint64_t aliased_when(const char *conf, void (*arrange)(struct sg_core *core, const CUdeviceptr *block),
    uint64_t asker)
{
    struct sg_core *core = inspect_start(conf, MIB(512));
    CUdeviceptr block[8];
    make_gaps(core, stream(core, 1), block, 8);
    if (arrange)
        arrange(core, block);
    (void)allocate(core, asker ? stream(core, asker) : 0, MIB(16));
    uint64_t bytes = value(core, SG_STAT_aliased_bytes);
    stop(core);
    return bytes;
}

static void pin_gaps(struct sg_core *core, const CUdeviceptr *block)
{
    for (int i = 0; i < 8; i += 2)
        sg_core_pin(core, block[i], MIB(8));
}

static void capture(struct sg_core *core, const CUdeviceptr *block)
{
    (void)core;
    (void)block;
    inspect_capturing = true;
}

static void enable_peer(struct sg_core *core, const CUdeviceptr *block)
{
    (void)block;
    assert_int_equal(sg_core_peer_access(core, 0, 1, true), CUDA_SUCCESS);
}

static void wait_for_first(struct sg_core *core, const CUdeviceptr *block)
{
    (void)block;
    struct sg_vector_clock clock;
    sg_core_clock(core, 0, stream(core, 1), &clock);
    sg_core_ordered_after(core, 0, stream(core, 2), &clock);
}

static void test_who_gets_them(void **state)
{
    (void)state;
    assert_int_equal(aliased_when("reserve_slack:1.0", NULL, 1), MIB(16));
    assert_int_equal(aliased_when("reserve_slack:1.0", wait_for_first, 2), MIB(16));
    assert_int_equal(aliased_when("reserve_slack:1.0", NULL, 2), 0);
    assert_int_equal(aliased_when("reserve_slack:1.0", NULL, 0), 0);
    assert_int_equal(aliased_when("reserve_slack:1.0,alias:off", NULL, 1), 0);
    assert_int_equal(aliased_when("reserve_slack:1.0", pin_gaps, 1), 0);
    assert_int_equal(aliased_when("reserve_slack:1.0", capture, 1), 0);
    assert_int_equal(aliased_when("reserve_slack:1.0", enable_peer, 1), 0);
    assert_int_equal(aliased_when("", NULL, 1), 0); /* there is room */
}

/* What is left over of a page at its second address has been used before, so it is not just anybody's. */
static void test_the_rest_of_a_page_has_a_past(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    sg_slot slot = stream(core, 1), other = stream(core, 2);
    CUdeviceptr block[8];
    make_gaps(core, slot, block, 8);
    CUdeviceptr large = allocate(core, slot, MIB(16) - MIB(1) / 2);
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(16));
    uint64_t mine = strict_mapped(allocate(core, other, MIB(1) / 2) & ~(MIB(2) - 1), MIB(2));
    assert_int_not_equal(mine, 0);
    for (int i = 0; i < 8; i += 2)
        for (uint64_t at = 0; at < MIB(8); at += MIB(2))
            assert_int_not_equal(strict_mapped(block[i] + at, MIB(2)), mine);
    release(core, slot, large);
    stop(core);
}

/* Peers that come later reach a page at the address that it has now; the old one is nobody's. */
static void test_peers_come_later(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    CUdeviceptr block[8];
    uint64_t backing;
    make_gaps(core, stream(core, 1), block, 8);
    CUdeviceptr large = allocate(core, stream(core, 1), MIB(16));
    enable_peer(core, block);
    assert_true(strict_backing(large, MIB(16), 1, &backing));
    stop(core);
}

/* The small region has fewer addresses than what is held elsewhere would need; its pages need no more than it holds
   itself. */
static void test_pages_of_small_blocks(void **state)
{
    (void)state;
    enum { SMALL = 128, BYTES = 64 << 10 };
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    sg_slot slot = stream(core, 1);
    CUdeviceptr small[SMALL];
    (void)allocate(core, slot, MIB(80));
    for (int i = 0; i < SMALL; i++)
        small[i] = allocate(core, slot, BYTES);
    for (int i = 0; i < SMALL; i++)
        release(core, slot, small[i]);
    (void)allocate(core, slot, MIB(8));
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(8));
    assert_int_equal(value(core, SG_STAT_reserved_bytes), MIB(88));
    stop(core);
}

/* With more than half of them in use none is to spare. */
static void test_addresses_of_small_blocks(void **state)
{
    (void)state;
    enum { SMALL = 600, BYTES = 64 << 10 };
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    sg_slot slot = stream(core, 1);
    CUdeviceptr small[SMALL];
    (void)allocate(core, slot, MIB(80));
    for (int i = 0; i < SMALL; i++)
        small[i] = allocate(core, slot, BYTES);
    for (int i = 0; i < SMALL; i++)
        release(core, slot, small[i]);
    uint64_t held = value(core, SG_STAT_reserved_bytes);
    (void)allocate(core, slot, MIB(8));
    assert_int_equal(value(core, SG_STAT_aliased_bytes), 0);
    assert_int_equal(value(core, SG_STAT_reserved_bytes), held + MIB(8));
    stop(core);
}

static uint32_t pinned_pages(const struct sg_core *core)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < core->device[0]->regions.count; i++)
        pages += core->device[0]->regions.region[i]->memory.pinned;
    return pages;
}

/* An old address that the program pins stays where it is, with its memory, and counts as no pinned page. */
static void test_pinned_old_address(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    sg_slot slot = stream(core, 1);
    CUdeviceptr block[8];
    make_gaps(core, slot, block, 8);
    CUdeviceptr large = allocate(core, slot, MIB(16));
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(16));
    uint32_t before = pinned_pages(core);
    sg_core_pin(core, large, MIB(16)); /* its pages stay where they are already */
    assert_int_equal(pinned_pages(core), before);
    for (int i = 0; i < 8; i += 2)
        sg_core_pin(core, block[i], MIB(8));
    inspect(core, 1);
    assert_int_equal(pinned_pages(core) - before, MIB(16) / MIB(2)); /* those that have one address */
    release(core, slot, large);
    sg_core_poll(core, 0);
    strict_complete(UINT32_MAX);
    (void)sg_core_trim(core, 0, 0);
    assert_int_equal(value(core, SG_STAT_aliased_bytes), MIB(16));
    inspect(core, 1);
    stop(core);
}

static void mappings_with_aliases_stay_below_the_limit(void **state)
{
    (void)state;
    enum { KEPT = 18, TURNS = 600, MAPPINGS = 1024, LIMIT = 160 };
    struct sg_core *core = inspect_start("limit:160MiB,mapping_limit:1024", MIB(LIMIT));
    sg_slot slot = stream(core, 1);
    CUdeviceptr kept[KEPT];
    uint64_t most = 0;
    for (int i = 0; i < KEPT; i++)
        kept[i] = allocate(core, slot, MIB(4));
    for (int turn = 0; turn < TURNS; turn++) { /* some of what stays is made anew in the place of what is large */
        CUdeviceptr large = allocate(core, slot, MIB(30 + 6 * (turn % 5)));
        for (int i = turn % 3; i < KEPT; i += 3) {
            CUdeviceptr old = kept[i];
            kept[i] = allocate(core, slot, MIB(4 + turn % 2));
            uint64_t now = value(core, SG_STAT_aliased_bytes);
            most = now > most ? now : most;
            release(core, slot, old);
        }
        release(core, slot, large);
    }
    assert_true(most > 2 * MIB(LIMIT)); /* more than a region has addresses */
    assert_true(most <= MAPPINGS * MIB(2));
    assert_true(value(core, SG_STAT_host_waits) > 0);
    stop(core);
}

static struct {
    int asked, wanted;
    bool allows;
} tried;

static bool try_aliases(int device, bool wanted)
{
    assert_int_equal(device, 0);
    tried.asked += !wanted;
    tried.wanted += wanted;
    return tried.allows;
}

/* A device is not tried by a program that only allocates and ends. It is where work on free pages is not complete, or
   more than half of the device would be held. */
static void test_tried_when_of_use(void **state)
{
    (void)state;
    struct sg_core *core = inspect_start("reserve_slack:1.0", MIB(512));
    core->callbacks.aliases = try_aliases;
    memset(&tried, 0, sizeof tried);
    sg_slot slot = stream(core, 1);
    for (int i = 0; i < 8; i++)
        (void)allocate(core, slot, MIB(32));
    assert_int_equal(tried.asked, 8);
    assert_int_equal(tried.wanted, 0);
    (void)allocate(core, slot, MIB(32)); /* 288 of 512 */
    assert_int_equal(tried.wanted, 1);
    stop(core);

    core = inspect_start("reserve_slack:1.0", MIB(512));
    core->callbacks.aliases = try_aliases;
    memset(&tried, 0, sizeof tried);
    slot = stream(core, 1);
    CUdeviceptr first = allocate(core, slot, MIB(32)), second = allocate(core, slot, MIB(32));
    release(core, slot, first);
    (void)allocate(core, slot, MIB(64)); /* there are free pages with work on them */
    assert_int_equal(tried.wanted, 1);
    assert_int_equal(value(core, SG_STAT_aliased_bytes), 0); /* it said no */
    tried.allows = true;
    release(core, slot, second);
    (void)allocate(core, slot, MIB(96));
    assert_int_equal(tried.wanted, 1); /* it was known */
    assert_true(value(core, SG_STAT_aliased_bytes) > 0);
    stop(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_old_address_stays_until_work_is_done),
        cmocka_unit_test(test_who_gets_them),
        cmocka_unit_test(test_the_rest_of_a_page_has_a_past),
        cmocka_unit_test(test_peers_come_later),
        cmocka_unit_test(test_pages_of_small_blocks),
        cmocka_unit_test(test_addresses_of_small_blocks),
        cmocka_unit_test(test_pinned_old_address),
        cmocka_unit_test(test_tried_when_of_use),
        cmocka_unit_test(mappings_with_aliases_stay_below_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
