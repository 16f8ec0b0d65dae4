/* Overflow: blocks that lie on another device or in the host's memory in part, on a strict driver. Devices have 64 MiB, pages are of
   2 MiB. The spare of the device is 256 KiB, so a page of it stays free. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/conf_read.h"
#include "inspect/core_state.h"
#include "inspect/oom_text.h"
#include "random.h"
#include "rooms.h"
#include "inspect.h"
#include "strict_driver.h"

#define MIB(n) ((uint64_t)(n) << 20)

static struct sg_core *core;
static const struct sg_tag plain = {.sync = SG_FREE_SYNC_COMPLETE},
                           last = {.sync = SG_FREE_SYNC_COMPLETE, .overflow = true};
enum { DEVICES = 3 };
static uint64_t host_room, peer_room;
static uint64_t reached; /* devices whose memory device 0 reaches, a bit each */
static char line[300];
static int lines;

static uint64_t ask_host_room(void)
{
    return host_room;
}

/* The first of those that are reached, with what it has free, up to peer_room. */
static bool find_neighbour(int device, uint64_t peers, uint64_t among, int *ret_device, uint64_t *ret_room)
{
    uint64_t found = reached & among & ~(UINT64_C(1) << device);
    (void)peers;
    if (!found)
        return false;
    *ret_device = __builtin_ctzll(found);
    *ret_room = MIB(64) - strict_used(*ret_device);
    *ret_room = *ret_room < peer_room ? *ret_room : peer_room;
    return true;
}

static void warn(const char *text)
{
    snprintf(line, sizeof line, "%s", text);
    lines++;
}

static void start(const char *settings, uint64_t host_bytes)
{
    struct sg_conf conf;
    strict_reset(DEVICES, MIB(64), MIB(2));
    strict_host(host_bytes);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, settings, NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf,
        .driver = &strict_driver,
        .callbacks = {.host_room = ask_host_room, .neighbour = find_neighbour, .warn = warn}});
    assert_non_null(core);
    host_room = peer_room = UINT64_MAX;
    reached = 1 << 1;
    lines = 0;
}

static void stop(void)
{
    const char *rule;
    sg_core_destroy(core);
    if (strict_broken(&rule))
        fail_msg("%s", rule);
    assert_int_equal(strict_leaks(), 0);
    for (int device = 0; device < DEVICES; device++)
        assert_int_equal(strict_used(device), 0);
    assert_int_equal(strict_used(STRICT_HOST), 0);
}

static CUresult ask(uint64_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    CUresult result = sg_core_malloc(core, 0, bytes, tag, ret);
    inspect(core, 1);
    return result;
}

static CUdeviceptr allocate(uint64_t bytes)
{
    CUdeviceptr address = 0;
    assert_int_equal(ask(bytes, &last, &address), CUDA_SUCCESS);
    return address;
}

static void release(CUdeviceptr address)
{
    assert_int_equal(sg_core_free(core, address, &plain), CUDA_SUCCESS);
    inspect(core, 1);
}

static uint64_t value(enum sg_stat stat)
{
    struct sg_stats stats;
    assert_true(sg_core_stats(core, 0, &stats));
    return stats.value[stat];
}

static void expect_refused(uint64_t bytes, const struct sg_tag *tag, const char *text)
{
    CUdeviceptr address = 7;
    char report[4096];
    uint64_t before = strict_used(STRICT_HOST);
    assert_int_equal(ask(bytes, tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(address, 7);
    assert_int_equal(strict_used(STRICT_HOST), before);
    sg_core_oom_text(core, 0, NULL, report, sizeof report);
    if (text)
        assert_non_null(strstr(report, text));
    else
        assert_null(strstr(report, "  overflow "));
}

static void only_what_is_lacking_lies_elsewhere(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(40)), rest;
    uint64_t handles;
    assert_int_equal(value(SG_STAT_overflow_bytes), 0);
    rest = allocate(MIB(30)); /* 24 are free; 2 of them are spared for small blocks */
    assert_int_equal(value(SG_STAT_overflow_bytes), MIB(8));
    assert_int_equal(value(SG_STAT_overflow_blocks), 1);
    assert_int_equal(strict_used(STRICT_HOST), MIB(8));
    assert_int_equal(strict_used(0), MIB(62));
    assert_true(strict_backing(rest, MIB(30), 0, &handles));
    assert_int_equal(lines, 1);
    assert_non_null(strstr(line, "of a block of 30 MiB 8 MiB lie in the host's memory"));
    release(allocate(4096)); /* a small one has the spare */
    release(rest);
    assert_int_equal(strict_used(STRICT_HOST), 0);
    assert_int_equal(value(SG_STAT_overflow_bytes), 0);
    release(most);
    stop();
}

/* Idle pages in pieces go back to the driver, and serve as near parts. */
static void idle_pages_come_first(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr block[8];
    for (int i = 0; i < 8; i++)
        block[i] = allocate(MIB(8));
    for (int i = 0; i < 8; i += 2)
        release(block[i]);
    CUdeviceptr large = allocate(MIB(48)); /* 32 are idle */
    assert_int_equal(value(SG_STAT_overflow_bytes), MIB(18));
    for (int i = 1; i < 8; i += 2)
        release(block[i]);
    release(large);
    assert_int_equal(strict_used(STRICT_HOST), 0);
    stop();
}

static void the_next_block_finds_its_place_on_the_device(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(40));
    for (int step = 0; step < 5; step++) {
        release(allocate(MIB(30)));
        assert_int_equal(value(SG_STAT_overflow_blocks), step + 1);
        assert_int_equal(strict_used(STRICT_HOST), 0);
    }
    assert_int_equal(lines, 1);
    release(most);
    release(allocate(MIB(30)));
    assert_int_equal(value(SG_STAT_overflow_blocks), 5);
    stop();
}

/* A block that is freed behind work keeps its far part until that is complete, and no longer than to the next growth. */
static void memory_behind_work_goes_back_before_the_device_grows(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(40)), rest = allocate(MIB(30));
    const struct sg_tag later = {.sync = SG_FREE_SYNC_EVENT};
    assert_int_equal(sg_core_free(core, rest, &later), CUDA_SUCCESS);
    assert_int_equal(strict_used(STRICT_HOST), MIB(8));
    strict_complete(1000);
    release(allocate(MIB(20)));
    assert_int_equal(strict_used(STRICT_HOST), 0);
    assert_int_equal(value(SG_STAT_overflow_blocks), 1);
    release(most);
    stop();
}

/* Small far blocks share pages. While the device is full an idle page of the host's serves the next one, and none is made. */
static void far_pages_are_kept_while_the_device_is_full(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(64)), block[4];
    for (int i = 0; i < 4; i++)
        block[i] = allocate(MIB(1) - 4096);
    assert_int_equal(strict_used(STRICT_HOST), MIB(4));
    uint64_t created = value(SG_STAT_calls_create);
    for (int turn = 0; turn < 100; turn++) {
        release(block[turn % 4]);
        block[turn % 4] = allocate(MIB(1) - 4096);
    }
    assert_int_equal(value(SG_STAT_calls_create), created);
    assert_int_equal(strict_used(STRICT_HOST), MIB(4));
    for (int i = 0; i < 4; i++)
        release(block[i]);
    assert_int_equal(strict_used(STRICT_HOST), MIB(4)); /* no room yet */
    release(most);
    assert_int_equal(strict_used(STRICT_HOST), 0);
    stop();
}

/* With less room than the margin, they go back once there was no such block for 256 allocations. */
static void far_pages_go_back_after_a_while(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(56)), some = allocate(MIB(4)), rest = allocate(MIB(8));
    assert_int_equal(strict_used(STRICT_HOST), MIB(6));
    release(some);
    release(rest);
    for (int i = 0; i < 254; i++) {
        release(allocate(MIB(1) / 2));
        assert_int_equal(strict_used(STRICT_HOST), MIB(6));
    }
    release(allocate(MIB(1) / 2));
    release(allocate(MIB(1) / 2));
    assert_int_equal(strict_used(STRICT_HOST), 0);
    release(most);
    stop();
}

/* A trim gives them back whatever else is in use. */
static void a_trim_gives_far_pages_back(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(62));
    release(allocate(MIB(8)));
    assert_int_equal(strict_used(STRICT_HOST), MIB(8));
    sg_core_trim(core, 0, 0);
    inspect(core, 1);
    assert_int_equal(strict_used(STRICT_HOST), 0);
    release(most);
    stop();
}

/* Idle pages of the host's that lie apart move to the place of a larger block, so no more are made than are lacking. */
static void idle_far_pages_move(void **state)
{
    (void)state;
    start("overflow:host=8MiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(64)), block[4];
    for (int i = 0; i < 4; i++)
        block[i] = allocate(MIB(2));
    release(block[0]);
    release(block[2]);
    CUdeviceptr large = allocate(MIB(4));
    assert_int_equal(strict_used(STRICT_HOST), MIB(8));
    expect_refused(MIB(2), &last, "is less than is lacking");
    release(large);
    release(block[1]);
    release(block[3]);
    release(most);
    stop();
}

static void what_forbids_it_is_said(void **state)
{
    (void)state;
    CUdeviceptr address;
    start("overflow:host=6MiB", MIB(1024));
    allocate(MIB(40));
    expect_refused(MIB(30), &plain, NULL); /* other memory is left to try */
    expect_refused(MIB(30), &last, "overflow:host=6.00 MiB is less than is lacking");
    host_room = MIB(3);
    expect_refused(MIB(27), &last, "control group, has less memory to spare");
    host_room = MIB(6);
    assert_int_equal(ask(MIB(28), &last, &address), CUDA_SUCCESS); /* all that the option allows */
    expect_refused(MIB(4), &last, "is less than is lacking");
    stop();
}

static void the_option_is_off_by_default(void **state)
{
    (void)state;
    start("", MIB(1024));
    allocate(MIB(40));
    expect_refused(MIB(30), &last, NULL);
    stop();
}

static void drivers_without_host_pages(void **state)
{
    (void)state;
    start("overflow:host=1GiB", 0);
    allocate(MIB(40));
    expect_refused(MIB(30), &last, "this driver makes no pages in the host's memory");
    stop();
}

static void small_and_tagged_blocks_stay(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(1024));
    struct sg_tag tagged = last;
    tagged.memory_tag = (uint8_t)sg_core_tag(core, "weights", SG_TAG_SAVED);
    assert_true(tagged.memory_tag);
    allocate(MIB(64));
    expect_refused(MIB(1) / 8, &last, "less than 256.00 KiB never lie");
    expect_refused(MIB(8), &tagged, "memory that may be paused");
    stop();
}

/* A host that runs out half-way: nothing is left behind, and the block is refused. */
static void a_host_that_is_out_of_memory(void **state)
{
    (void)state;
    start("overflow:host=1GiB", MIB(4));
    allocate(MIB(40));
    expect_refused(MIB(30), &last, "the driver has refused pages");
    assert_int_equal(strict_used(0), MIB(40));
    stop();
}

/* The neighbour has what is lacking as far as it goes, and the host the rest. */
static void the_neighbour_comes_before_the_host(void **state)
{
    (void)state;
    uint64_t handles;
    start("overflow:peer=4MiB,host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(40)), rest = allocate(MIB(30));
    assert_true(strict_backing(rest, MIB(30), 0, &handles));
    assert_int_equal(strict_used(1), MIB(4));
    assert_int_equal(strict_used(STRICT_HOST), MIB(4));
    assert_int_equal(value(SG_STAT_overflow_bytes), MIB(8));
    assert_int_equal(value(SG_STAT_overflow_peer_bytes), MIB(4));
    assert_int_equal(value(SG_STAT_overflow_blocks), 1);
    assert_int_equal(lines, 1);
    assert_non_null(
        strstr(line, "of a block of 30 MiB 4 MiB lie on device 1 and 4 MiB in the host's memory while it lives, "
                     "as overflow:peer,host allows"));
    release(rest);
    assert_int_equal(strict_used(1) + strict_used(STRICT_HOST), 0);
    assert_int_equal(value(SG_STAT_overflow_peer_bytes), 0);
    release(most);
    stop();
}

/* Only memory that is to spare there is taken, and with "peer" all of it. */
static void the_neighbour_gives_what_it_has_to_spare(void **state)
{
    (void)state;
    start("overflow:peer", MIB(1024));
    CUdeviceptr most = allocate(MIB(64)), block;
    peer_room = MIB(7);
    expect_refused(MIB(8), &last, "  overflow the other device has less memory to spare than is lacking");
    assert_int_equal(strict_used(1), 0);
    assert_int_equal(ask(MIB(6), &last, &block), CUDA_SUCCESS);
    assert_int_equal(strict_used(1), MIB(6));
    assert_int_equal(strict_used(STRICT_HOST), 0);
    assert_non_null(strstr(line, "6 MiB lie on device 1 while it lives, as overflow:peer allows"));
    release(block);
    release(most);
    stop();
}

/* A neighbour that has less than the books say: the host has the rest, or the block is refused and nothing is left. */
static void a_neighbour_that_is_out_of_memory(void **state)
{
    (void)state;
    start("overflow:peer,host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(64)), other = 0, block;
    assert_int_equal(sg_core_malloc(core, 1, MIB(60), &plain, &other), CUDA_SUCCESS);
    strict_fail_at(4, false, CUDA_ERROR_OUT_OF_MEMORY);
    block = allocate(MIB(16));
    strict_fail_at(0, false, CUDA_SUCCESS);
    assert_int_equal(value(SG_STAT_overflow_bytes), MIB(16));
    assert_int_equal(strict_used(1) - MIB(60) + strict_used(STRICT_HOST), MIB(16));
    release(block);
    release(most);
    release(other);
    stop();
}

/* Idle pages on the neighbour are used again while the device is full. It has them back when it runs out itself. */
static void the_neighbour_has_idle_pages_back(void **state)
{
    (void)state;
    start("overflow:peer,host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(64)), block = allocate(MIB(8)), other = 0;
    uint64_t created = value(SG_STAT_calls_create);
    release(block);
    block = allocate(MIB(8));
    assert_int_equal(value(SG_STAT_calls_create), created);
    assert_int_equal(sg_core_return_from(core, 1), 0); /* in use */
    release(block);
    assert_int_equal(strict_used(1), MIB(8));
    assert_int_equal(sg_core_malloc(core, 1, MIB(60), &plain, &other), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(sg_core_return_from(core, 2), 0);
    assert_int_equal(sg_core_return_from(core, 1), MIB(8));
    inspect(core, 2);
    assert_int_equal(sg_core_malloc(core, 1, MIB(60), &plain, &other), CUDA_SUCCESS);
    release(other);
    release(most);
    stop();
}

/* It stays the same one while the device has pages there. Then another one may be it. */
static void there_is_one_neighbour_at_a_time(void **state)
{
    (void)state;
    start("overflow:peer,host=1GiB", MIB(1024));
    CUdeviceptr most = allocate(MIB(64)), first = allocate(MIB(8));
    reached = 1 << 2;
    CUdeviceptr second = allocate(MIB(4)); /* device 1 can't be asked now */
    assert_int_equal(strict_used(1), MIB(8));
    assert_int_equal(strict_used(2), 0);
    assert_int_equal(strict_used(STRICT_HOST), MIB(4));
    release(first);
    release(second);
    sg_core_trim(core, 0, 0);
    assert_int_equal(strict_used(1), 0);
    first = allocate(MIB(8));
    assert_int_equal(strict_used(2), MIB(8));
    release(first);
    release(most);
    stop();
}

/* Without a neighbour a line says so, once, and the host serves as before. */
static void devices_that_reach_no_other(void **state)
{
    (void)state;
    start("overflow:peer,host=1GiB", MIB(1024));
    reached = 0;
    CUdeviceptr most = allocate(MIB(64));
    release(allocate(MIB(8)));
    release(allocate(MIB(8)));
    assert_int_equal(lines, 2); /* the other is of the first block in the host's memory */
    assert_int_equal(value(SG_STAT_overflow_blocks), 2);
    release(most);
    stop();
    start("overflow:peer", MIB(1024));
    reached = 0;
    most = allocate(MIB(64));
    expect_refused(MIB(8), &last, "this device reaches no other one's memory as its own");
    assert_int_equal(lines, 1);
    assert_string_equal(line,
        "overflow:peer has no effect on device 0: it reaches no other device's memory as its own");
    release(most);
    stop();
}

/* Far pages are where the books say, but for those that a failed call has left there. */
static void expect_booked(void)
{
    uint64_t peer = value(SG_STAT_overflow_peer_bytes), host = value(SG_STAT_overflow_bytes) - peer;
    uint64_t on_peer = strict_used(1), on_host = strict_used(STRICT_HOST);
    assert_true(on_peer >= peer && on_peer <= peer + strict_stuck(1));
    assert_true(on_host >= host && on_host <= host + strict_stuck(STRICT_HOST));
}

/* All memory is given back, but for that. */
static void expect_only_stuck(void)
{
    for (int device = 0; device < DEVICES; device++)
        assert_int_equal(strict_used(device), strict_stuck(device));
    assert_int_equal(strict_used(STRICT_HOST), strict_stuck(STRICT_HOST));
}

/* Each call of the driver fails in turn: the block is served or refused, and nothing is lost. */
static void fail_calls_in_turn(const char *settings)
{
    const char *call;
    for (uint64_t number = 1, failed = 1; failed; number++) {
        CUdeviceptr rest = 0;
        start(settings, MIB(1024));
        CUdeviceptr most = allocate(MIB(40));
        release(allocate(MIB(10)));
        strict_fail_at(number, false, CUDA_SUCCESS);
        CUresult result = sg_core_malloc(core, 0, MIB(30), &last, &rest);
        failed = strict_failed(&call);
        strict_fail_at(0, false, CUDA_SUCCESS);
        inspect(core, 1);
        expect_booked();
        if (result == CUDA_SUCCESS)
            release(rest);
        release(most);
        const char *rule;
        sg_core_destroy(core);
        assert_int_equal(strict_broken(&rule), 0);
        assert_int_equal(strict_leaks(), 0);
        expect_only_stuck();
    }
}

static void calls_that_fail(void **state)
{
    (void)state;
    fail_calls_in_turn("overflow:host=1GiB");
    fail_calls_in_turn("overflow:peer");
    fail_calls_in_turn("overflow:peer=4MiB,host=1GiB");
}

enum { RANDOM_BLOCKS = 48, RANDOM_ACTS = 150, RANDOM_SEEDS = 120 };

/* Frees a block at random: complete at once, or behind work. */
static void release_at_random(struct random *random, CUdeviceptr *address)
{
    const struct sg_tag tag = {.sync = random_below(random, 2) ? SG_FREE_SYNC_COMPLETE : SG_FREE_SYNC_EVENT};
    assert_int_equal(sg_core_free(core, *address, &tag), CUDA_SUCCESS);
    *address = 0;
    inspect(core, 1);
}

/* Settings of random programs, and what they allow elsewhere. */
static const struct {
    const char *text;
    uint64_t peer, host;
} random_settings[] = {
    {"overflow:host=200MiB", 0, MIB(200)},
    {"overflow:host=24MiB", 0, MIB(24)},
    {"overflow:peer", MIB(64), 0},
    {"overflow:peer=10MiB,host=24MiB", MIB(10), MIB(24)},
};

/* Small, regular and huge blocks come and go, with calls that fail. Other devices have given as much as the books
   say, which is within the option. In the end they have all back. */
static void play_at_random(uint64_t seed)
{
    struct random random = {seed};
    CUdeviceptr block[RANDOM_BLOCKS] = {0};
    uint64_t kind = seed % (sizeof random_settings / sizeof *random_settings);
    start(random_settings[kind].text, MIB(seed % 3 ? 1024 : 40));
    for (int act = 0; act < RANDOM_ACTS; act++) {
        CUdeviceptr *one = &block[random_below(&random, RANDOM_BLOCKS)];
        uint64_t most = random_below(&random, 8) ? MIB(6) : MIB(48);
        if (random_below(&random, 12) == 0)
            strict_fail_at(1 + random_below(&random, 30), false, CUDA_SUCCESS);
        if (random_below(&random, 9) == 0)
            strict_complete(random_below(&random, 20));
        if (*one)
            release_at_random(&random, one);
        else
            (void)ask(1 + random_below(&random, most), random_below(&random, 5) ? &last : &plain, one);
        uint64_t peer = value(SG_STAT_overflow_peer_bytes);
        assert_true(peer <= random_settings[kind].peer);
        assert_true(value(SG_STAT_overflow_bytes) - peer <= random_settings[kind].host);
        expect_booked();
        if (random_below(&random, 40) == 0)
            sg_core_trim(core, 0, 0);
        if (random_below(&random, 40) == 0)
            (void)sg_core_return_from(core, 1);
    }
    strict_fail_at(0, false, CUDA_SUCCESS);
    for (int i = 0; i < RANDOM_BLOCKS; i++)
        if (block[i])
            release_at_random(&random, &block[i]);
    const char *rule;
    sg_core_destroy(core);
    assert_int_equal(strict_broken(&rule), 0);
    assert_int_equal(strict_leaks(), 0);
    expect_only_stuck();
}

/* OVERFLOW_SEEDS=FROM:TO plays others. */
static void random_programs(void **state)
{
    (void)state;
    const char *asked = getenv("OVERFLOW_SEEDS");
    unsigned long long from = 1, to = 1 + RANDOM_SEEDS;
    if (asked)
        assert_int_equal(sscanf(asked, "%llu:%llu", &from, &to), 2);
    for (uint64_t seed = from; seed < to; seed++)
        play_at_random(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_lacking_lies_elsewhere),
        cmocka_unit_test(idle_pages_come_first),
        cmocka_unit_test(the_next_block_finds_its_place_on_the_device),
        cmocka_unit_test(memory_behind_work_goes_back_before_the_device_grows),
        cmocka_unit_test(far_pages_are_kept_while_the_device_is_full),
        cmocka_unit_test(far_pages_go_back_after_a_while),
        cmocka_unit_test(a_trim_gives_far_pages_back),
        cmocka_unit_test(idle_far_pages_move),
        cmocka_unit_test(what_forbids_it_is_said),
        cmocka_unit_test(the_option_is_off_by_default),
        cmocka_unit_test(drivers_without_host_pages),
        cmocka_unit_test(small_and_tagged_blocks_stay),
        cmocka_unit_test(a_host_that_is_out_of_memory),
        cmocka_unit_test(the_neighbour_comes_before_the_host),
        cmocka_unit_test(the_neighbour_gives_what_it_has_to_spare),
        cmocka_unit_test(a_neighbour_that_is_out_of_memory),
        cmocka_unit_test(the_neighbour_has_idle_pages_back),
        cmocka_unit_test(there_is_one_neighbour_at_a_time),
        cmocka_unit_test(devices_that_reach_no_other),
        cmocka_unit_test(calls_that_fail),
        cmocka_unit_test(random_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
