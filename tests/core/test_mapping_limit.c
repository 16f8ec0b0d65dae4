/* How many mappings a device takes of a machine's: eight large devices can all be full, in pages that are larger the more
   there are, and what was made before them serves on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ledger_driver.h"
#include "check.h"
#include "inspect/core_state.h"
#include "rooms.h"
#include "locked.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
enum { DEVICES = 8, BLOCKS = 4000, GRANULE = 2 << 20, LINES = 16, LIMIT = 12288 };

static struct sg_ledger card;
static struct sg_driver driver;
static struct sg_core *core;
static CUdeviceptr block[DEVICES][BLOCKS];
static int blocks[DEVICES];
static char line[LINES][300];
static int lines;

/* The driver's own count, by the granules of the card's addresses at which mappings begin. */
enum { GRANULES = 1 << 23 };
static struct {
    uint8_t begins[GRANULES], devices[GRANULES]; /* devices: that have access */
    uint64_t now, most, all; /* all: that there are */
    CUresult code;           /* what is answered when there are too few */
} machine;

static uint64_t granule(CUdeviceptr address)
{
    uint64_t at = (address - SG_LEDGER_BASE) / GRANULE;
    assert_true(at < GRANULES);
    return at;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    assert_false(machine.begins[granule(address)]);
    machine.begins[granule(address)] = 1;
    return sg_ledger_driver.map(address, bytes, offset, handle, flags);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    uint64_t more = 0;
    for (uint64_t at = granule(address); at < granule(address) + bytes / GRANULE; at++)
        more += machine.begins[at] && machine.devices[at] < count ? count - machine.devices[at] : 0;
    if (machine.now + more > machine.all)
        return machine.code;
    machine.now += more;
    for (uint64_t at = granule(address); at < granule(address) + bytes / GRANULE; at++) {
        if (!machine.begins[at] || machine.devices[at] >= count)
            continue;
        machine.devices[at] = (uint8_t)count;
    }
    machine.most = machine.now > machine.most ? machine.now : machine.most;
    return sg_ledger_driver.set_access(address, bytes, access, count);
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    for (uint64_t at = granule(address); at < granule(address) + bytes / GRANULE; at++) {
        machine.now -= machine.devices[at];
        machine.begins[at] = machine.devices[at] = 0;
    }
    return sg_ledger_driver.unmap(address, bytes);
}

static void warn(const char *text)
{
    assert_true(lines < LINES);
    strcpy(line[lines++], text);
}

static void start(uint64_t total, uint64_t page_size)
{
    struct sg_conf conf;
    sg_conf_init(&conf);
    if (page_size)
        conf.page_size = page_size;
    memset(&machine, 0, sizeof machine);
    memset(blocks, 0, sizeof blocks);
    machine.all = UINT64_MAX;
    machine.code = CUDA_ERROR_OUT_OF_MEMORY;
    lines = 0;
    driver = sg_ledger_driver;
    driver.map = map;
    driver.unmap = unmap;
    driver.set_access = set_access;
    sg_ledger_init(&card, total, GRANULE);
    sg_ledger_use(&card);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver, .callbacks.warn = warn});
    assert_non_null(core);
}

static void stop(void)
{
    assert_null(sg_core_broken(core, SG_CHECK_TABLES));
    sg_core_destroy(core);
    assert_int_equal(machine.now, 0);
    for (int device = 0; device < DEVICES; device++)
        assert_int_equal(card.device[device].used_bytes, 0);
    sg_ledger_fini(&card);
}

static bool allocate(int device, uint64_t bytes)
{
    assert_true(blocks[device] < BLOCKS);
    sg_ledger_use_device(device);
    bool got = sg_core_malloc(core, device, bytes, &(struct sg_tag){0}, &block[device][blocks[device]]) == CUDA_SUCCESS;
    blocks[device] += got;
    return got;
}

/* Blocks of many sizes until no smallest one is left to be had. Returns what is allocated. */
static uint64_t fill(int device)
{
    uint64_t seed = (uint64_t)device + 1, bytes, all = 0;
    for (uint64_t most = MIB(1600); most >= MIB(8); most /= 2) {
        do {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            bytes = MIB(2) + (seed >> 33) % most / 512 * 512;
            bytes = allocate(device, bytes) ? bytes : 0;
            all += bytes;
        } while (bytes);
    }
    return all;
}

static void release(int device, int which)
{
    sg_ledger_use_device(device);
    assert_int_equal(sg_core_free(core, block[device][which], &(struct sg_tag){.sync = SG_FREE_SYNC_COMPLETE}), CUDA_SUCCESS);
    block[device][which] = block[device][--blocks[device]];
}

static void expect_share(int device)
{
    struct sg_device *known = sg_device_known(core, device);
    assert_in_range(LOCKED(known, sg_mappings_now_locked(known)), 1, LIMIT);
}

/* Eight full devices of any size have less than a quarter of a machine's together. */
static void eight_devices_are_full_at_once(void **state)
{
    static const uint64_t sizes[] = {24, 80, 192};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        start(GIB(sizes[i]), 0);
        for (int device = 0; device < DEVICES; device++) {
            uint64_t all = fill(device);
            assert_true(all > GIB(sizes[i]) / 100 * 97);
            expect_share(device);
        }
        assert_in_range(machine.most, 1, SG_MAPPINGS_OF_MACHINE / 4);
        assert_null(sg_core_broken(core, SG_CHECK_TABLES));
        assert_int_equal(lines, 0);
        for (int device = 0; device < DEVICES; device++)
            while (blocks[device])
                release(device, blocks[device] / 2);
        stop();
    }
}

static void a_page_is_a_share_of_the_device(void **state)
{
    static const struct {
        uint64_t gib, mib;
    } sizes[] = {{8, 2}, {20, 2}, {24, 4}, {40, 4}, {48, 8}, {80, 8}, {141, 16}, {192, 32}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        start(GIB(sizes[i].gib), 0);
        assert_true(allocate(0, GIB(1)));
        assert_int_equal(sg_device_known(core, 0)->regions.page_bytes[SG_KIND_REGULAR], MIB(sizes[i].mib));
        assert_int_equal(sg_device_known(core, 0)->regions.page_bytes[SG_KIND_SMALL], GRANULE);
        stop();
    }
}

/* Many small blocks take larger pages, too, once the device would have too many. */
static void small_blocks_fill_a_device(void **state)
{
    uint64_t all = 0;
    (void)state;
    start(GIB(40), 0);
    CUdeviceptr address;
    sg_ledger_use_device(0);
    while (sg_core_malloc(core, 0, 60 << 10, &(struct sg_tag){0}, &address) == CUDA_SUCCESS)
        all += 60 << 10;
    assert_true(all > GIB(40) / 100 * 99);
    expect_share(0);
    assert_null(sg_core_broken(core, SG_CHECK_TABLES));
    sg_core_context_gone(core, 0, NULL);
    stop();
}

/* What others have access to counts for each of them. */
static void peers_count(void **state)
{
    (void)state;
    start(GIB(80), 0);
    for (int device = 0; device < 4; device++)
        for (int peer = 0; peer < 4; peer++)
            if (peer != device)
                assert_int_equal(sg_core_peer_access(core, device, peer, true), CUDA_SUCCESS);
    for (int device = 0; device < 4; device++) {
        assert_true(fill(device) > GIB(80) / 100 * 97);
        expect_share(device);
    }
    uint64_t now = 0;
    for (int device = 0; device < 4; device++) {
        struct sg_device *known = sg_device_known(core, device);
        now += LOCKED(known, sg_mappings_now_locked(known));
    }
    assert_int_equal(machine.now, now);
    stop();
}

/* Peers that come when a device has pages make those that it gets from then on larger. */
static void peers_come_late(void **state)
{
    (void)state;
    start(GIB(80), 0);
    assert_true(allocate(0, GIB(30)));
    for (int peer = 1; peer < 3; peer++)
        assert_int_equal(sg_core_peer_access(core, 0, peer, true), CUDA_SUCCESS);
    assert_true(fill(0) > GIB(50) / 100 * 96);
    expect_share(0);
    stop();
}

/* Who says how large pages are has them. */
static void a_size_of_the_users_is_kept(void **state)
{
    (void)state;
    start(GIB(141), GRANULE);
    (void)fill(0);
    assert_int_equal(machine.now, GIB(141) / GRANULE);
    assert_int_equal(lines, 0);
    stop();
}

/* Memory in small pages that is free again is used on, in pieces where it is and for large blocks elsewhere. */
static void small_pages_serve_on(void **state)
{
    (void)state;
    uint64_t seed = 1;
    start(GIB(141), 0);
    (void)fill(0);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 10 && blocks[0]; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
            release(0, (int)((seed >> 33) % (unsigned)blocks[0]));
        }
        size_t available = card.total_bytes - card.device[0].used_bytes, total = card.total_bytes;
        sg_core_mem_info(core, 0, &available, &total);
        if (round % 10 == 0) /* as much as is said to be free can be had as one */
            assert_true(allocate(0, available / GRANULE * GRANULE));
        else
            for (int i = 0; i < 10; i++) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                (void)allocate(0, 512 + (seed >> 33) % MIB(1000));
            }
        expect_share(0);
    }
    assert_null(sg_core_broken(core, SG_CHECK_TABLES));
    while (blocks[0])
        release(0, 0);
    assert_true(allocate(0, GIB(140)));
    stop();
}

/* As many pages may have a second address as leave mappings for what may still be held. */
static void second_addresses_have_a_bound(void **state)
{
    (void)state;
    start(GIB(16), 0);
    assert_true(allocate(0, GIB(4)));
    struct sg_device *device = sg_device_known(core, 0);
    assert_int_equal(LOCKED(device, sg_mappings_left_locked(device)), LIMIT - GIB(16) / GRANULE);
    assert_int_equal(LOCKED(device, sg_alias_room_locked(device, device->regions.region[0])), LIMIT - GIB(16) / GRANULE);
    assert_true(allocate(0, GIB(7)));
    assert_int_equal(LOCKED(device, sg_mappings_left_locked(device)), LIMIT - GIB(16) / GRANULE);
    stop();
    start(GIB(141), GRANULE); /* a size of the user's */
    assert_true(allocate(0, GIB(10)));
    device = sg_device_known(core, 0);
    assert_int_equal(LOCKED(device, sg_mappings_left_locked(device)), LIMIT / 6);
    assert_true(allocate(0, GIB(60)));
    assert_int_equal(LOCKED(device, sg_mappings_left_locked(device)), 0);
    assert_int_equal(sg_core_peer_access(core, 0, 1, true), CUDA_SUCCESS);
    assert_int_equal(LOCKED(device, sg_mappings_now_locked(device)), 2 * GIB(70) / GRANULE);
    stop();
}

enum { HALVES = 100, BLOCK = 20 << 20 };

/* Half of the blocks are free again, nowhere more than one of them together, and others have taken the mappings that
   were left. */
static void take_the_rest(CUresult code)
{
    for (int i = 0; i < 2 * HALVES; i++)
        assert_true(allocate(0, BLOCK));
    for (int i = HALVES - 1; i >= 0; i--) { /* the last one takes the place of each in the list */
        assert_int_equal(sg_core_free(core, block[0][2 * i], &(struct sg_tag){.sync = SG_FREE_SYNC_COMPLETE}), CUDA_SUCCESS);
        block[0][2 * i] = block[0][--blocks[0]];
    }
    assert_int_equal(blocks[0], HALVES);
    machine.all = machine.now;
    machine.code = code;
}

/* What is idle has some: it goes back, and the device goes on in larger pages, for as long as there are any. */
static void what_lacks_mappings_goes_on(void **state)
{
    static const CUresult codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        start(GIB(24), 0);
        take_the_rest(codes[i]);
        assert_true(allocate(0, 3 * BLOCK));
        assert_int_equal(lines, 1);
        assert_non_null(strstr(line[0], "device 0: the driver maps no more pages (error "));
        assert_non_null(strstr(line[0], "new ones are of 16 MiB"));
        struct sg_device *device = sg_device_known(core, 0);
        assert_int_equal(LOCKED(device, sg_mappings_left_locked(device)), 0);
        assert_int_equal(device->accounts.usage.reserved.now, HALVES * (uint64_t)BLOCK + 64 * MIB(1));
        assert_null(sg_core_broken(core, SG_CHECK_TABLES));
        for (int more = 0; more < 150; more++) /* 2 mappings each, of the five hundred that are free now */
            assert_true(allocate(0, 30 * MIB(1)));
        assert_int_equal(lines, 1);
        while (allocate(0, 30 * MIB(1))) {
        }
        assert_in_range(machine.all - machine.now, 0, 4);
        stop();
    }
}

/* A size of the user's stays, and what else can be done is. */
static void a_size_of_the_users_goes_on_too(void **state)
{
    (void)state;
    start(GIB(24), GRANULE);
    take_the_rest(CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(allocate(0, 3 * BLOCK));
    assert_non_null(strstr(line[0], "2000 MiB of idle pages were given back"));
    assert_non_null(strstr(line[0], "new ones are of 2 MiB"));
    stop();
}

/* Another error says nothing of mappings, and without idle memory there is nothing that could be given back: the driver
   is asked for the block. */
static void other_errors_are_none(void **state)
{
    CUdeviceptr address;
    (void)state;
    start(GIB(24), 0);
    take_the_rest(CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(sg_core_malloc(core, 0, 3 * BLOCK, &(struct sg_tag){0}, &address), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(lines, 0);
    assert_int_equal(sg_device_known(core, 0)->regions.page_bytes[SG_KIND_REGULAR], 2 * GRANULE);
    stop();
    start(GIB(24), 0);
    for (int i = 0; i < HALVES; i++)
        assert_true(allocate(0, BLOCK));
    machine.all = machine.now;
    assert_int_not_equal(sg_core_malloc(core, 0, BLOCK, &(struct sg_tag){0}, &address), CUDA_SUCCESS);
    assert_int_equal(lines, 1);
    assert_int_equal(sg_device_known(core, 0)->accounts.usage.reserved.now, HALVES * (uint64_t)BLOCK);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_devices_are_full_at_once),
        cmocka_unit_test(a_page_is_a_share_of_the_device),
        cmocka_unit_test(small_blocks_fill_a_device),
        cmocka_unit_test(peers_count),
        cmocka_unit_test(peers_come_late),
        cmocka_unit_test(a_size_of_the_users_is_kept),
        cmocka_unit_test(small_pages_serve_on),
        cmocka_unit_test(second_addresses_have_a_bound),
        cmocka_unit_test(what_lacks_mappings_goes_on),
        cmocka_unit_test(a_size_of_the_users_goes_on_too),
        cmocka_unit_test(other_errors_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
