/* Random programs against the whole allocator on a strict driver. What must hold: live blocks lie apart, aligned and
   behind mapped pages that nobody moves; the statistics are exact; limits are kept; and what cudaMemGetInfo calls free
   can be had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "inspect.h"
#include "random.h"
#include "size.h"
#include "strict_kept.h"

enum { BLOCKS = 150 };

static const uint64_t GRANULE = 2 * SG_MIB;

struct program {
    struct sg_core *core;
    struct random random;
    int devices;
    uint64_t total, limit;
    struct block {
        CUdeviceptr address;
        uint64_t bytes, backing, id;
        int device;
    } block[BLOCKS];
    uint64_t requested[STRICT_DEVICES];
};

static void program_init(struct program *program, const char *text, int devices, uint64_t total, uint64_t granule,
    uint64_t seed)
{
    struct sg_conf conf;
    memset(program, 0, sizeof *program);
    strict_reset(devices, total, granule);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    program->core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &strict_driver});
    assert_non_null(program->core);
    program->random.state = seed;
    program->devices = devices;
    program->total = total;
    program->limit = conf.limit_bytes ? conf.limit_bytes : total;
}

static void expect_untouched(const struct block *block)
{
    uint64_t backing = 0;
    if (!strict_backing(block->address, block->bytes, block->device, &backing) || backing != block->backing)
        fail_msg("the memory of a live block was moved");
}

static CUresult allocate(struct program *program, struct block *block, int device, uint64_t bytes)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
    CUdeviceptr address = 1;
    strict_use(device);
    CUresult result = sg_core_malloc(program->core, device, bytes, &tag, &address);
    if (result != CUDA_SUCCESS) {
        assert_int_equal(address, 1);
        return result;
    }
    assert_int_equal(address % 512, 0);
    for (int i = 0; i < BLOCKS; i++) {
        const struct block *other = &program->block[i];
        if (other->address && strict_share(address, bytes, other->address, other->bytes))
            fail_msg("two live blocks share memory");
    }
    *block = (struct block){.address = address, .bytes = bytes, .device = device};
    if (!strict_backing(address, bytes, device, &block->backing))
        fail_msg("memory was handed out that cannot be used");
    program->requested[device] += bytes;
    struct sg_block_info info;
    assert_int_equal(sg_core_block(program->core, address + random_below(&program->random, bytes), &info),
        CUDA_SUCCESS);
    assert_int_equal(info.base, address);
    assert_int_equal(info.bytes, bytes);
    assert_int_equal(info.device, device);
    block->id = info.buffer_id;
    assert_true(sg_core_owns(program->core, address + bytes - 1));
    return CUDA_SUCCESS;
}

static void release(struct program *program, struct block *block, enum sg_free_sync sync)
{
    const struct sg_tag tag = {.sync = sync};
    struct sg_block_info info;
    expect_untouched(block);
    assert_int_equal(sg_core_block(program->core, block->address, &info), CUDA_SUCCESS);
    assert_int_equal(info.buffer_id, block->id);
    strict_use(block->device);
    if (block->bytes > 512)
        assert_int_equal(sg_core_free(program->core, block->address + 512, &tag), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_free(program->core, block->address + 1, &tag), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_free(program->core, block->address, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(program->core, block->address, &tag), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(sg_core_block(program->core, block->address, &info), CUDA_ERROR_INVALID_VALUE);
    program->requested[block->device] -= block->bytes;
    block->address = 0;
}

static void unknown_addresses(struct program *program)
{
    const struct sg_tag tag = {.sync = SG_FREE_SYNC_STRICT};
    struct sg_block_info info;
    static const CUdeviceptr unknown[] = {0, 512, UINT64_C(0x7effffffffff), UINT64_C(0x7fffffffff00)};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_false(sg_core_owns(program->core, unknown[i]));
        assert_int_equal(sg_core_free(program->core, unknown[i], &tag), CUDA_ERROR_NOT_FOUND);
        assert_int_equal(sg_core_block(program->core, unknown[i], &info), CUDA_ERROR_NOT_FOUND);
    }
}

/* What cudaMemGetInfo says is free can be allocated at once, in whole granules. */
static void expect_free_is_free(struct program *program, int device)
{
    size_t free_bytes = program->total - strict_used(device), total_bytes = program->total;
    sg_core_mem_info(program->core, device, &free_bytes, &total_bytes);
    struct block block = {0};
    assert_true(free_bytes <= program->limit);
    free_bytes -= free_bytes % GRANULE;
    if (free_bytes == 0)
        return;
    CUresult result = allocate(program, &block, device, free_bytes);
    if (result != CUDA_SUCCESS) {
        char text[2000];
        sg_core_oom_text(program->core, device, NULL, text, sizeof text);
        fail_msg("%zu bytes are said to be free but cannot be had (%d): %s", free_bytes, result, text);
    }
    inspect(program->core, program->devices);
    release(program, &block, SG_FREE_SYNC_COMPLETE);
}

static uint64_t random_size(struct random *random, uint64_t total)
{
    switch (random_below(random, 12)) {
    case 0:
        return random_between(random, 1, 512);
    case 1:
    case 2:
    case 3:
        return random_between(random, 513, SG_MIB);
    case 4:
        return (1 + random_below(random, 8)) * SG_MIB + random_below(random, 3) * 512; /* around whole pages */
    case 5:
        return random_between(random, total / 8, total / 3);
    case 6:
        return random_below(random, 6) ? SG_MIB : random_between(random, total / 3, total);
    default:
        return random_between(random, SG_MIB, 16 * SG_MIB);
    }
}

static void step(struct program *program)
{
    struct random *random = &program->random;
    struct block *block = &program->block[random_below(random, BLOCKS)];
    int device = (int)random_below(random, (uint64_t)program->devices);
    if (block->address) {
        static const enum sg_free_sync syncs[] = {SG_FREE_SYNC_COMPLETE, SG_FREE_SYNC_COMPLETE, SG_FREE_SYNC_COMPLETE,
            SG_FREE_SYNC_EVENT, SG_FREE_SYNC_EVENT, SG_FREE_SYNC_STRICT};
        release(program, block, syncs[random_below(random, 6)]);
    } else {
        uint64_t bytes = random_size(random, program->limit);
        CUresult result = allocate(program, block, device, bytes);
        assert_true(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    }
    switch (random_below(random, 40)) {
    case 0:
        sg_core_trim(program->core, device, random_below(random, program->limit));
        break;
    case 1:
    case 2:
        strict_complete(random_below(random, 6));
        break;
    case 3:
        sg_core_poll(program->core, device);
        break;
    case 4:
        unknown_addresses(program);
        break;
    default:
        break;
    }
}

static void finish(struct program *program)
{
    for (int i = 0; i < BLOCKS; i++)
        if (program->block[i].address)
            release(program, &program->block[i], SG_FREE_SYNC_COMPLETE);
    for (int i = 0; i < program->devices; i++)
        sg_core_poll(program->core, i); /* events are recorded when they are wanted */
    strict_complete(UINT32_MAX);
    for (int i = 0; i < program->devices; i++)
        sg_core_trim(program->core, i, 0);
    inspect_empty(program->core, program->devices);
    sg_core_destroy(program->core);
    strict_expect_over();
}

static void run(const char *conf, int devices, uint64_t total, uint64_t granule, bool free_is_free)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        static struct program program;
        program_init(&program, conf, devices, total, granule, seed);
        for (int i = 0; i < 2500; i++) {
            step(&program);
            for (int device = 0; device < devices; device++) {
                struct sg_stats stats;
                if (sg_core_stats(program.core, device, &stats))
                    assert_int_equal(stats.value[SG_STAT_requested_bytes], program.requested[device]);
            }
            if (i % 8 == 0) {
                inspect(program.core, devices);
                for (int k = 0; k < BLOCKS; k++)
                    if (program.block[k].address)
                        expect_untouched(&program.block[k]);
            }
            if (free_is_free && i % 50 == 0)
                expect_free_is_free(&program, (int)random_below(&program.random, (uint64_t)devices));
        }
        finish(&program);
    }
}

static void books_balance_with_the_defaults(void **state)
{
    (void)state;
    run("", 1, 256 * SG_MIB, GRANULE, true);
}

static void books_balance_where_pages_move_early(void **state)
{
    (void)state;
    run("reserve_slack:1.0", 1, 256 * SG_MIB, GRANULE, true);
}

static void books_balance_under_a_limit(void **state)
{
    (void)state;
    run("limit:200MiB,max_split_size_mb:20", 1, 512 * SG_MIB, GRANULE, true);
}

static void books_balance_on_three_devices(void **state)
{
    (void)state;
    run("reserve_slack:1.0", 3, 192 * SG_MIB, GRANULE, true);
}

static void test_large_pages(void **state)
{
    (void)state;
    run("page_size_mb:16,reserve_slack:1.0", 1, 512 * SG_MIB, GRANULE, true);
    run("page_size_mb:6", 1, 300 * SG_MIB, GRANULE, true);
}

static void test_small_granules(void **state)
{
    (void)state;
    run("reserve_slack:1.0", 1, 64 * SG_MIB, 64 * SG_KIB, true);
}

static void books_balance_with_rounded_sizes(void **state)
{
    (void)state;
    run("roundup_power2_divisions:4,garbage_collection_threshold:0.8", 1, 256 * SG_MIB, GRANULE, false);
}

/* Benchmarks and preallocating frameworks take most of the card again and again, in changing sizes. */
static void test_huge_again_and_again(void **state)
{
    (void)state;
    static struct program program;
    program_init(&program, "", 1, 256 * SG_MIB, GRANULE, 1);
    struct block keep = {0}, block = {0};
    assert_int_equal(allocate(&program, &keep, 0, 3 * SG_MIB), CUDA_SUCCESS);
    for (int i = 0; i < 300; i++) {
        uint64_t bytes = random_between(&program.random, 129 * SG_MIB, 250 * SG_MIB);
        assert_int_equal(allocate(&program, &block, 0, bytes), CUDA_SUCCESS);
        inspect(program.core, 1);
        release(&program, &block, i % 3 ? SG_FREE_SYNC_COMPLETE : SG_FREE_SYNC_EVENT);
        strict_complete(i % 2);
    }
    release(&program, &keep, SG_FREE_SYNC_COMPLETE);
    struct sg_stats stats;
    assert_true(sg_core_stats(program.core, 0, &stats));
    assert_true(stats.value[SG_STAT_segments] < 8);
    finish(&program);
}

/* A huge block whose size is rounded up further by the configuration than to whole granules. */
static void test_huge_rounded(void **state)
{
    (void)state;
    static struct program program;
    struct block block = {0};
    program_init(&program, "roundup_power2_divisions:2", 1, 1024 * SG_MIB, GRANULE, 1);
    assert_int_equal(allocate(&program, &block, 0, 520 * SG_MIB), CUDA_SUCCESS);
    struct sg_stats stats;
    assert_true(sg_core_stats(program.core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_allocated_bytes], 768 * SG_MIB);
    release(&program, &block, SG_FREE_SYNC_COMPLETE);
    finish(&program);
}

/* A huge block takes what is left of the card and idle pages together, though neither is enough. */
static void test_huge_beside_idle(void **state)
{
    (void)state;
    static struct program program;
    struct block small[10] = {{0}}, huge = {0};
    program_init(&program, "", 1, 256 * SG_MIB, GRANULE, 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(allocate(&program, &small[i], 0, 10 * SG_MIB), CUDA_SUCCESS);
    for (int i = 1; i < 10; i++)
        release(&program, &small[i], SG_FREE_SYNC_COMPLETE);
    assert_int_equal(allocate(&program, &huge, 0, 240 * SG_MIB), CUDA_SUCCESS);
    inspect(program.core, 1);
    release(&program, &huge, SG_FREE_SYNC_COMPLETE);
    release(&program, &small[0], SG_FREE_SYNC_COMPLETE);
    finish(&program);
}

/* Pinned pages of live blocks are no reason to leave the free ones beside them idle. */
static void pages_beside_pinned_ones_are_idle(void **state)
{
    (void)state;
    static struct program program;
    struct block pinned[8] = {{0}}, idle = {0}, late = {0};
    program_init(&program, "", 1, 256 * SG_MIB, GRANULE, 1);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(allocate(&program, &pinned[i], 0, 10 * SG_MIB), CUDA_SUCCESS);
        sg_core_pin(program.core, pinned[i].address, pinned[i].bytes);
    }
    assert_int_equal(allocate(&program, &idle, 0, 60 * SG_MIB), CUDA_SUCCESS);
    assert_int_equal(allocate(&program, &program.block[0], 0, 100 * SG_MIB), CUDA_SUCCESS);
    release(&program, &idle, SG_FREE_SYNC_COMPLETE);
    expect_free_is_free(&program, 0);
    assert_int_equal(allocate(&program, &late, 0, 70 * SG_MIB), CUDA_SUCCESS);
    release(&program, &late, SG_FREE_SYNC_COMPLETE);
    release(&program, &pinned[0], SG_FREE_SYNC_COMPLETE);
    uint64_t held = strict_used(0);
    sg_core_trim(program.core, 0, 0);
    /* all that is free but for the ten pinned ones of the block before */
    assert_int_equal(held - strict_used(0), 76 * SG_MIB);
    inspect(program.core, 1);
    for (int i = 1; i < 8; i++)
        release(&program, &pinned[i], SG_FREE_SYNC_COMPLETE);
    release(&program, &program.block[0], SG_FREE_SYNC_COMPLETE);
    sg_core_destroy(program.core);
    assert_int_equal(strict_leaks(), 0);
}

/* Plays one random program and returns what came of it in one number: every address, and what was moved. */
static uint64_t fingerprint(const char *conf, uint64_t total)
{
    static struct program program;
    uint64_t hash = 0;
    program_init(&program, conf, 1, total, GRANULE, 5);
    for (int i = 0; i < 4000; i++) {
        struct block *block = &program.block[random_below(&program.random, BLOCKS)];
        if (block->address)
            release(&program, block, SG_FREE_SYNC_COMPLETE);
        else if (allocate(&program, block, 0, random_size(&program.random, 256 * SG_MIB)) == CUDA_SUCCESS)
            hash = (hash ^ block->address) * UINT64_C(0x100000001b3);
    }
    struct sg_stats stats;
    assert_true(sg_core_stats(program.core, 0, &stats));
    hash ^= stats.value[SG_STAT_bytes_moved] ^ stats.peak[SG_STAT_reserved_bytes] << 20;
    finish(&program);
    return hash;
}

/* Where memory is kept tight, max_split_size changes nothing; where there is room it does. */
static void test_max_split_yields(void **state)
{
    (void)state;
    uint64_t tight = fingerprint("reserve_slack:1.0", 256 * SG_MIB);
    assert_int_equal(fingerprint("reserve_slack:1.0", 256 * SG_MIB), tight);
    assert_int_equal(fingerprint("reserve_slack:1.0,max_split_size_mb:20", 256 * SG_MIB), tight);
    assert_int_equal(fingerprint("reserve_slack:1.0,max_split_size_mb:64", 256 * SG_MIB), tight);
    assert_int_not_equal(fingerprint("max_split_size_mb:20", 8 * SG_GIB), fingerprint("", 8 * SG_GIB));
}

/* The host memory set aside for nodes runs out long before the card does: allocations fail, nothing else. */
static void test_few_nodes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        static struct program program;
        program_init(&program, "reserve_slack:1.0", 1, 1024 * SG_MIB, GRANULE, seed);
        unsigned failed = 0;
        for (int i = 0; i < 3000; i++) {
            struct block *block = &program.block[random_below(&program.random, BLOCKS)];
            if (block->address) {
                release(&program, block, random_below(&program.random, 2) ? SG_FREE_SYNC_COMPLETE : SG_FREE_SYNC_EVENT);
                strict_complete(1);
            } else {
                failed += allocate(&program, block, 0, random_size(&program.random, 32 * SG_MIB)) != CUDA_SUCCESS;
            }
            if (i == 0)
                program.core->device[0]->regions.extents.capacity = (uint32_t)(1024 + 20 + 15 * seed);
            if (i % 16 == 0)
                inspect(program.core, 1);
        }
        assert_true(failed > 0);
        finish(&program);
    }
}

/* A peer gets access to what is mapped already and to what comes later. */
static void peers_get_access_to_old_and_new_pages(void **state)
{
    (void)state;
    static struct program program;
    struct block block = {0};
    uint64_t unused;
    program_init(&program, "reserve_slack:1.0", 3, 256 * SG_MIB, GRANULE, 1);
    assert_int_equal(allocate(&program, &program.block[0], 0, 30 * SG_MIB), CUDA_SUCCESS);
    assert_int_equal(allocate(&program, &program.block[1], 0, 1000), CUDA_SUCCESS);
    assert_false(strict_backing(program.block[0].address, program.block[0].bytes, 2, &unused));
    assert_int_equal(sg_core_peer_access(program.core, 0, 2, true), CUDA_SUCCESS);
    for (int i = 0; i < 40; i++) {
        if (i % 3 == 2)
            release(&program, &block, SG_FREE_SYNC_COMPLETE);
        if (!block.address)
            assert_int_equal(allocate(&program, &block, 0, random_size(&program.random, 128 * SG_MIB)), CUDA_SUCCESS);
        assert_true(strict_backing(block.address, block.bytes, 2, &unused));
        assert_false(strict_backing(block.address, block.bytes, 1, &unused));
    }
    assert_true(strict_backing(program.block[0].address, program.block[0].bytes, 2, &unused));
    assert_true(strict_backing(program.block[1].address, program.block[1].bytes, 2, &unused));
    release(&program, &block, SG_FREE_SYNC_COMPLETE);
    finish(&program);
}

static void blocks_end_with_their_context(void **state)
{
    (void)state;
    static struct program program;
    program_init(&program, "", 1, 256 * SG_MIB, GRANULE, 1);
    CUcontext one = (CUcontext)(uintptr_t)0x1000, two = (CUcontext)(uintptr_t)0x2000;
    CUdeviceptr address[12];
    sg_core_context_seen(program.core, 0, one);
    sg_core_context_seen(program.core, 0, two);
    for (int i = 0; i < 12; i++) {
        struct sg_tag tag = {.context = i % 2 ? two : one, .sync = SG_FREE_SYNC_EVENT};
        assert_int_equal(sg_core_malloc(program.core, 0, (uint64_t)(i + 1) * 300000, &tag, &address[i]), CUDA_SUCCESS);
    }
    struct sg_tag tag = {.context = one, .sync = SG_FREE_SYNC_EVENT};
    assert_int_equal(sg_core_free(program.core, address[0], &tag), CUDA_SUCCESS);
    tag.context = two;
    assert_int_equal(sg_core_free(program.core, address[1], &tag), CUDA_SUCCESS);
    sg_core_context_gone(program.core, 0, one);
    inspect(program.core, 1);
    struct sg_stats stats;
    assert_true(sg_core_stats(program.core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_allocations], 5);
    assert_int_equal(stats.value[SG_STAT_pending_bytes], 300032 + 600064); /* the other's work may be on either */
    sg_core_context_gone(program.core, 0, two);
    assert_true(sg_core_stats(program.core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_pending_bytes], 0);
    inspect(program.core, 1);
    sg_core_trim(program.core, 0, 0);
    inspect_empty(program.core, 1);
    sg_core_destroy(program.core);
}

/* Where memory is short, the oldest of what is pending is waited for, and no more than has to be. */
static void test_pending_limit(void **state)
{
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        static struct program program;
        program_init(&program, limited ? "reserve_slack:1.0,pending_limit:16MiB" : "reserve_slack:1.0", 1,
            1024 * SG_MIB, GRANULE, 1);
        uint64_t most = 0;
        struct sg_stats stats;
        for (int i = 0; i < 40; i++) {
            struct block block = {0};
            assert_int_equal(allocate(&program, &block, 0, 6 * SG_MIB), CUDA_SUCCESS);
            assert_true(sg_core_stats(program.core, 0, &stats));
            most = stats.value[SG_STAT_pending_bytes] > most ? stats.value[SG_STAT_pending_bytes] : most;
            release(&program, &block, SG_FREE_SYNC_EVENT);
        }
        assert_int_equal(most > 16 * SG_MIB, !limited);
        assert_int_equal(stats.value[SG_STAT_host_waits] > 0, limited);
        finish(&program);
    }
}

/* A peak that a reader lets begin again decides nothing: a replay knows of no readers. */
static void test_pending_limit_whoever_reads_peaks(void **state)
{
    (void)state;
    struct sg_stats stats[2];
    for (int read = 0; read < 2; read++) {
        static struct program program;
        program_init(&program, "", 1, 64 * SG_MIB, GRANULE, 1);
        struct block most = {0};
        assert_int_equal(allocate(&program, &most, 0, 63 * SG_MIB), CUDA_SUCCESS);
        release(&program, &most, SG_FREE_SYNC_EVENT);
        for (int i = 0; i < 40; i++) {
            struct block block = {0};
            assert_int_equal(allocate(&program, &block, 0, 6 * SG_MIB), CUDA_SUCCESS);
            release(&program, &block, SG_FREE_SYNC_EVENT);
            if (read)
                sg_core_reset_peaks(program.core, 0);
        }
        assert_true(sg_core_stats(program.core, 0, &stats[read]));
        finish(&program);
    }
    assert_true(stats[0].value[SG_STAT_host_waits] > 0);
    assert_memory_equal(stats[0].value, stats[1].value, sizeof stats[0].value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books_balance_with_the_defaults),
        cmocka_unit_test(books_balance_where_pages_move_early),
        cmocka_unit_test(books_balance_under_a_limit),
        cmocka_unit_test(books_balance_on_three_devices),
        cmocka_unit_test(test_large_pages),
        cmocka_unit_test(test_small_granules),
        cmocka_unit_test(books_balance_with_rounded_sizes),
        cmocka_unit_test(test_huge_again_and_again),
        cmocka_unit_test(test_huge_rounded),
        cmocka_unit_test(test_huge_beside_idle),
        cmocka_unit_test(pages_beside_pinned_ones_are_idle),
        cmocka_unit_test(test_max_split_yields),
        cmocka_unit_test(test_few_nodes),
        cmocka_unit_test(peers_get_access_to_old_and_new_pages),
        cmocka_unit_test(blocks_end_with_their_context),
        cmocka_unit_test(test_pending_limit),
        cmocka_unit_test(test_pending_limit_whoever_reads_peaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
