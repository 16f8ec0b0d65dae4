/* Plans that the driver lets down half-way, call by call of one kind: what is undone, what is lost, and what is said of
   that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "strict_kept.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { TOTAL = 64, BLOCKS = 8 };

static struct sg_driver driver;
static struct sg_core *core;
static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};

/* Of each kind of call those fail that have these numbers, counted from here, and one more. */
static struct calls {
    unsigned made, first, last, other;
} maps, accesses, unmaps;

static void let_fail(struct calls *calls, unsigned first, unsigned last)
{
    *calls = (struct calls){.first = first, .last = last};
}

static void fail_none(void)
{
    maps = accesses = unmaps = (struct calls){.first = 1};
}

static bool fails(struct calls *calls)
{
    calls->made++;
    return calls->made == calls->other || (calls->made >= calls->first && calls->made <= calls->last);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    return fails(&maps) ? CUDA_ERROR_UNKNOWN : strict_driver.map(address, bytes, offset, handle, flags);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    /* that says nothing of mappings, of which test_mapping_limit.c is */
    return fails(&accesses) ? CUDA_ERROR_NOT_PERMITTED : strict_driver.set_access(address, bytes, access, count);
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    if (!fails(&unmaps))
        return strict_driver.unmap(address, bytes);
    strict_fail_at(1, false, CUDA_ERROR_UNKNOWN); /* what was not unmapped counts as stuck */
    CUresult result = strict_driver.unmap(address, bytes);
    strict_fail_at(0, false, CUDA_SUCCESS);
    return result;
}

static CUdeviceptr allocate(uint64_t bytes)
{
    CUdeviceptr address = 0;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), CUDA_SUCCESS);
    inspect(core, 1);
    return address;
}

static void release(CUdeviceptr address)
{
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    inspect(core, 1);
}

static uint64_t value(enum sg_stat stat)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[stat];
}

/* A card that is full of blocks of two pages, every other of which is free: a larger one needs pages to move. */
static CUdeviceptr block[BLOCKS];

static int start(void **state)
{
    struct sg_conf conf;
    (void)state;
    fail_none();
    strict_reset(2, MIB(TOTAL), MIB(2));
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, "reserve_slack:1.0,limit:32MiB", NULL, NULL), 0);
    driver = strict_driver;
    driver.map = map;
    driver.set_access = set_access;
    driver.unmap = unmap;
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    for (int i = 0; i < BLOCKS; i++)
        block[i] = allocate(MIB(4));
    for (int i = 0; i < BLOCKS; i += 2)
        release(block[i]);
    return 0;
}

/* Blocks that lived are whole, and go; nothing of the driver's rules was broken. */
static int stop(void **state)
{
    uint64_t backing;
    (void)state;
    fail_none();
    for (int i = 1; i < BLOCKS; i += 2) {
        assert_true(strict_backing(block[i], MIB(4), 0, &backing));
        release(block[i]);
    }
    (void)sg_core_trim(core, 0, 0);
    inspect(core, 1);
    sg_core_destroy(core);
    strict_expect_kept();
    return strict_leaks() ? -1 : 0;
}

/* Both tries fail. */
static void expect_failure(uint64_t bytes, CUresult expected)
{
    CUdeviceptr address = 5;
    assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &address), expected);
    assert_int_equal(address, 5);
    inspect(core, 1);
}

/* Whichever page can't be mapped: all of them go back where they were. */
static void pages_go_back_where_they_were(void **state)
{
    (void)state;
    uint64_t reserved = value(SG_STAT_reserved_bytes);
    for (unsigned at = 1; at <= 4; at++) {
        maps = (struct calls){.first = at, .last = at, .other = 2 * at + 4}; /* four pages went back between these */
        expect_failure(MIB(8), CUDA_ERROR_OUT_OF_MEMORY); /* the driver's own would go over the limit */
        assert_int_equal(value(SG_STAT_reserved_bytes), reserved);
    }
    fail_none();
    release(allocate(MIB(8)));
}

/* Nor can the first be mapped where it was: that run is given back, and the next try makes pages anew. */
static void pages_that_cannot_go_back(void **state)
{
    (void)state;
    uint64_t reserved = value(SG_STAT_reserved_bytes);
    let_fail(&maps, 1, 2);
    uint64_t created = value(SG_STAT_pages_created);
    CUdeviceptr address = allocate(MIB(8));
    fail_none();
    assert_int_equal(value(SG_STAT_reserved_bytes), reserved);
    assert_int_equal(strict_used(0), reserved);
    assert_true(value(SG_STAT_pages_created) > created);
    release(address);
}

/* They are mapped again where they were, but without access: they are given back. */
static void pages_that_cannot_be_used_are_given_back(void **state)
{
    (void)state;
    uint64_t reserved = value(SG_STAT_reserved_bytes);
    let_fail(&accesses, 1, UINT32_MAX);
    expect_failure(MIB(8), CUDA_ERROR_NOT_SUPPORTED);
    fail_none();
    assert_int_equal(value(SG_STAT_reserved_bytes), reserved - MIB(8));
    assert_int_equal(strict_used(0), reserved - MIB(8));
    release(allocate(MIB(8)));
}

/* Nor can they be unmapped there: those addresses are lost, and with them what is behind. Peers are given access to the
   rest. */
static void pages_that_stay_are_lost(void **state)
{
    (void)state;
    uint64_t reserved = value(SG_STAT_reserved_bytes), backing;
    let_fail(&accesses, 1, UINT32_MAX);
    let_fail(&unmaps, 3, UINT32_MAX); /* those that take pages succeed */
    expect_failure(MIB(8), CUDA_ERROR_NOT_SUPPORTED);
    fail_none();
    assert_true(value(SG_STAT_reserved_bytes) < reserved);
    assert_true(strict_stuck(0) > 0);
    assert_int_equal(sg_core_peer_access(core, 0, 1, true), CUDA_SUCCESS);
    for (int i = 1; i < BLOCKS; i += 2)
        assert_true(strict_backing(block[i], MIB(4), 1, &backing));
    release(allocate(MIB(4)));
}

/* So are old addresses that can't be unmapped. */
static void addresses_that_cannot_be_unmapped_are_lost(void **state)
{
    (void)state;
    const struct sg_stream_id id = {.key = 1};
    const struct sg_tag mine = {.slot = sg_core_slot(core, 0, &id), .sync = SG_FREE_SYNC_STREAM};
    CUdeviceptr own[4], address;
    sg_core_set_limit(core, 0, MIB(32));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sg_core_malloc(core, 0, MIB(4), &mine, &own[i]), CUDA_SUCCESS);
        sg_core_slot_submitted(core, 0, mine.slot);
    }
    for (int i = 0; i < 4; i += 2)
        assert_int_equal(sg_core_free(core, own[i], &mine), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, MIB(8), &mine, &address), CUDA_SUCCESS);
    inspect(core, 1);
    assert_true(value(SG_STAT_aliased_bytes) > 0);
    assert_int_equal(sg_core_free(core, address, &mine), CUDA_SUCCESS);
    sg_core_poll(core, 0);
    strict_complete(UINT32_MAX);
    sg_core_poll(core, 0);
    let_fail(&unmaps, 1, UINT32_MAX);
    assert_int_equal(sg_core_trim(core, 0, 0), 0);
    fail_none();
    assert_int_equal(value(SG_STAT_aliased_bytes), 0);
    assert_true(strict_stuck(0) > 0);
    inspect(core, 1);
    assert_int_equal(sg_core_peer_access(core, 0, 1, true), CUDA_SUCCESS); /* but to those */
    for (int i = 1; i < 4; i += 2)
        assert_int_equal(sg_core_free(core, own[i], &mine), CUDA_SUCCESS);
    strict_complete(UINT32_MAX);
}

/* The driver has no more pages by now, and another thread has freed a block meanwhile: its pages do instead. */
static CUdeviceptr freed_meanwhile;

static CUresult create_after_a_free(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    (void)ret;
    (void)bytes;
    (void)prop;
    (void)flags;
    if (freed_meanwhile)
        assert_int_equal(sg_core_free(core, freed_meanwhile, &tag), CUDA_SUCCESS);
    freed_meanwhile = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void what_was_freed_meanwhile_does(void **state)
{
    (void)state;
    sg_core_set_limit(core, 0, MIB(32));
    CUdeviceptr again[BLOCKS / 2];
    for (int i = 0; i < BLOCKS / 2; i++)
        again[i] = allocate(MIB(4));
    for (int i = 1; i < BLOCKS / 2; i++)
        release(again[i]);
    (void)sg_core_trim(core, 0, 0);
    freed_meanwhile = again[0];
    driver.create = create_after_a_free;
    CUdeviceptr last = allocate(MIB(3));
    assert_int_equal(freed_meanwhile, 0);
    driver.create = strict_driver.create;
    release(last);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pages_go_back_where_they_were), TEST(pages_that_cannot_be_used_are_given_back),
        TEST(pages_that_cannot_go_back), TEST(pages_that_stay_are_lost),
        TEST(addresses_that_cannot_be_unmapped_are_lost), TEST(what_was_freed_meanwhile_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
