/* How a device is found fit or unfit, and what bounds its regions: their number, and the size of one. */
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
#include "size.h"
#include "strict_driver.h"

static const struct sg_tag tag = {.sync = SG_FREE_SYNC_COMPLETE};
static struct sg_driver driver;
static struct sg_core *core;

static void start_with(const char *text, int devices, uint64_t total)
{
    struct sg_conf conf;
    strict_reset(devices, total, 2 << 20);
    sg_conf_init(&conf);
    assert_int_equal(sg_conf_apply(&conf, SG_CONF_ARGUMENT, text, NULL, NULL), 0);
    core = sg_core_create(&(struct sg_core_params){.conf = &conf, .driver = &driver});
    assert_non_null(core);
}

static void stop(void)
{
    const char *what;
    sg_core_destroy(core);
    if (strict_broken(&what))
        fail_msg("a rule of the driver was broken: %s", what);
    assert_int_equal(strict_leaks(), 0);
    driver = strict_driver;
    strict_use(0);
}

static CUresult no_total(size_t *ret, CUdevice device)
{
    (void)ret;
    (void)device;
    return CUDA_ERROR_INVALID_DEVICE;
}

static CUresult total_of_nothing(size_t *ret, CUdevice device)
{
    (void)device;
    *ret = 0;
    return CUDA_SUCCESS;
}

static CUresult no_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    (void)ret;
    (void)attribute;
    (void)device;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult not_supported(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    (void)attribute;
    (void)device;
    *ret = 0;
    return CUDA_SUCCESS;
}

static CUresult no_granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    (void)ret;
    (void)prop;
    (void)option;
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult granularity_of_a_byte(size_t *ret, const CUmemAllocationProp *prop,
    CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *ret = 1;
    return CUDA_SUCCESS;
}

static CUresult full(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    (void)ret;
    (void)bytes;
    (void)prop;
    (void)flags;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void expect_mode(const char *conf, enum sg_device_mode mode)
{
    CUdeviceptr address;
    start_with(conf, 1, 64 * SG_MIB);
    CUresult result = sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address);
    assert_int_equal(core->device[0]->mode, mode);
    assert_int_equal(result == CUDA_ERROR_NOT_SUPPORTED, mode == SG_MODE_PASSTHROUGH);
    if (result == CUDA_SUCCESS)
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    stop();
}

static void what_makes_a_device_unfit(void **state)
{
    (void)state;
    driver = strict_driver;
    expect_mode("", SG_MODE_EXPANDABLE);
    expect_mode("backend:cudaMallocAsync", SG_MODE_PASSTHROUGH);
    driver.device_total = no_total;
    expect_mode("", SG_MODE_PASSTHROUGH);
    driver.device_total = total_of_nothing;
    expect_mode("", SG_MODE_PASSTHROUGH);
    expect_mode("expandable_segments:False", SG_MODE_SEGMENTS);
    expect_mode("ipc:always", SG_MODE_SEGMENTS);
    driver.map = NULL;
    expect_mode("", SG_MODE_SEGMENTS);
    driver.device_attribute = no_attribute;
    expect_mode("", SG_MODE_SEGMENTS);
    driver.device_attribute = not_supported;
    expect_mode("", SG_MODE_SEGMENTS);
    driver.granularity = no_granularity;
    expect_mode("", SG_MODE_SEGMENTS);
    driver.granularity = granularity_of_a_byte;
    expect_mode("", SG_MODE_SEGMENTS);
    driver.create = full; /* which says nothing of what it can do */
    expect_mode("", SG_MODE_EXPANDABLE);
}

/* The best kind of pages that the driver makes is taken: what it says that it has, less what it then refuses. */
static uint8_t said, made; /* bits of enum sg_page_kind */

static CUresult says_what_it_has(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *ret = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
           (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED &&
               (said & SG_PAGES_EXPORTABLE)) ||
           (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED && (said & SG_PAGES_FABRIC)) ||
           (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED && (said & SG_PAGES_RDMA));
    return CUDA_SUCCESS;
}

static CUresult makes_what_it_can(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    uint8_t asked = (prop->allocFlags.gpuDirectRDMACapable ? SG_PAGES_RDMA : 0) |
                    (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? SG_PAGES_EXPORTABLE : 0) |
                    (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC ? SG_PAGES_FABRIC : 0);
    return asked & ~made ? CUDA_ERROR_NOT_SUPPORTED : strict_driver.create(ret, bytes, prop, flags);
}

static void kinds_of_pages(void **state)
{
    enum { BOTH = SG_PAGES_RDMA | SG_PAGES_EXPORTABLE, ALL = BOTH | SG_PAGES_FABRIC };
    static const struct {
        uint8_t said, made, taken;
    } kinds[] = {{BOTH, BOTH, BOTH}, {BOTH, SG_PAGES_RDMA, SG_PAGES_RDMA}, {BOTH, SG_PAGES_EXPORTABLE, 0}, {BOTH, 0, 0},
        {SG_PAGES_RDMA, BOTH, SG_PAGES_RDMA}, {SG_PAGES_EXPORTABLE, BOTH, SG_PAGES_EXPORTABLE},
        {SG_PAGES_EXPORTABLE, 0, 0}, {0, BOTH, 0}, {ALL, ALL, ALL}, {ALL, BOTH, BOTH},
        {ALL, SG_PAGES_RDMA, SG_PAGES_RDMA}, {ALL, 0, 0}, {BOTH, ALL, BOTH}, {SG_PAGES_FABRIC, ALL, SG_PAGES_FABRIC}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct sg_block_info block;
        CUdeviceptr address;
        said = kinds[i].said;
        made = kinds[i].made;
        driver.device_attribute = says_what_it_has;
        driver.create = makes_what_it_can;
        start_with("", 1, 64 * SG_MIB);
        assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address), CUDA_SUCCESS);
        assert_int_equal(core->device[0]->mode, SG_MODE_EXPANDABLE);
        assert_int_equal(core->device[0]->pages.kind, kinds[i].taken);
        assert_int_equal(sg_core_block(core, address, &block), CUDA_SUCCESS);
        assert_int_equal(block.plain, !(kinds[i].taken & SG_PAGES_EXPORTABLE));
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
        stop();
    }
}

/* Each call of the look at whether pages can come and go: where one fails it is looked once more, and only where that
   fails too are segments fixed. A device whose size is not told is left to
   the driver. */
static void probe_that_fails(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    driver = strict_driver;
    for (uint64_t i = 2;; i++) {
        const char *call;
        bool for_ever = i % 2;
        start_with("", 1, 64 * SG_MIB);
        strict_fail_at(i / 2, for_ever, CUDA_ERROR_NOT_PERMITTED);
        (void)sg_device_get(core, 0);
        bool failed = strict_failed(&call), mended = failed && !for_ever && strcmp(call, "device_total") != 0;
        strict_fail_at(0, false, CUDA_SUCCESS);
        if ((core->device[0]->mode == SG_MODE_EXPANDABLE) != (!failed || mended))
            fail_msg("%s fails %s: mode %d", call, for_ever ? "for ever" : "once", core->device[0]->mode);
        if (core->device[0]->mode != SG_MODE_PASSTHROUGH) {
            assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address), CUDA_SUCCESS);
            assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
        }
        stop();
        if (!failed)
            break;
        assert_true(i < 40);
    }
}

/* Addresses for no more than what is asked for at least. */
static uint64_t addresses_most;

static CUresult reserve_few(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    return bytes > addresses_most ? CUDA_ERROR_OUT_OF_MEMORY
                                  : strict_driver.address_reserve(ret, bytes, alignment, hint, flags);
}

/* Makes a region for a huge block of each of many sizes, none of which fits where one has been. */
static CUresult use_regions(int device, unsigned from, unsigned count)
{
    CUresult result = CUDA_SUCCESS;
    strict_use(device);
    for (unsigned i = from; i < from + count && result == CUDA_SUCCESS; i++) {
        CUdeviceptr address;
        addresses_most = 260 * SG_MIB + (uint64_t)i * 2 * SG_MIB;
        result = sg_core_malloc(core, device, addresses_most, &tag, &address);
        if (result == CUDA_SUCCESS)
            assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    }
    return result;
}

static void as_many_regions_as_there_may_be(void **state)
{
    (void)state;
    driver = strict_driver;
    driver.address_reserve = reserve_few;
    start_with("", 1, 512 * SG_MIB);
    assert_int_equal(use_regions(0, 0, SG_REGIONS_MAX), CUDA_SUCCESS);
    const struct sg_device *device = core->device[0];
    assert_int_equal(device->regions.count, SG_REGIONS_MAX);
    assert_int_equal(use_regions(0, SG_REGIONS_MAX, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(use_regions(0, 0, SG_REGIONS_MAX), CUDA_SUCCESS); /* each where one has been */
    inspect(core, 1);
    stop();
}

/* On many devices together; where there is no room for another range nothing is left of the region. */
static void as_many_ranges_as_there_may_be(void **state)
{
    (void)state;
    enum { RANGES = SG_REGIONS_MAX * 16, OF_ONE = SG_REGIONS_MAX - 4 };
    unsigned left = RANGES;
    int device = 0;
    driver = strict_driver;
    driver.address_reserve = reserve_few;
    start_with("", STRICT_DEVICES, 512 * SG_MIB);
    for (; left >= OF_ONE; left -= OF_ONE)
        assert_int_equal(use_regions(device++, 0, OF_ONE), CUDA_SUCCESS);
    assert_int_equal(use_regions(device, 0, left), CUDA_SUCCESS);
    assert_int_equal(core->range_count, RANGES);
    uint32_t extents = core->device[device]->regions.extents.live;
    for (int i = 0; i < 3; i++)
        assert_int_equal(use_regions(device, left, 1), CUDA_ERROR_OUT_OF_MEMORY);
    strict_use(device);
    addresses_most = UINT64_MAX;
    CUdeviceptr address;
    for (int i = 0; i < 2; i++) /* nor for small blocks, in a region that would have had the cells */
        assert_int_equal(sg_core_malloc(core, device, 3000, &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_false(core->device[device]->regions.extents.cells_taken);
    assert_int_equal(core->device[device]->regions.extents.live, extents);
    assert_int_equal(use_regions(device, 0, left), CUDA_SUCCESS);
    inspect(core, device + 1);
    stop();
}

/* Fills four pages with blocks of 512 bytes, and frees two neighbours of each `every`. Returns how many pages are made for
   two blocks of 1024 then, which only joined neighbours could serve. `refused`: the driver makes none by then. */
static uint64_t pages_for_larger_ones(const char *text, uint32_t every, bool refused)
{
    enum { BLOCKS = 4 * 4096 };
    static CUdeviceptr address[BLOCKS];
    driver = strict_driver;
    start_with(text, 1, 512 * SG_MIB);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_int_equal(sg_core_malloc(core, 0, SG_UNIT, &tag, &address[i]), CUDA_SUCCESS);
    const struct sg_device *device = core->device[0];
    uint64_t before = device->accounts.usage.reserved.now;
    for (uint32_t i = 0; i < BLOCKS; i += every)
        for (uint32_t next = i; next < i + 2; next++) {
            assert_int_equal(sg_core_free(core, address[next], &tag), CUDA_SUCCESS);
            address[next] = 0;
        }
    if (refused)
        driver.create = full;
    for (int i = 0; i < 2; i++)
        assert_int_equal(sg_core_malloc(core, 0, 2 * SG_UNIT, &tag, &address[i]), CUDA_SUCCESS);
    uint64_t pages = (device->accounts.usage.reserved.now - before) / (2 * SG_MIB);
    inspect(core, 1);
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (address[i])
            assert_int_equal(sg_core_free(core, address[i], &tag), CUDA_SUCCESS);
    stop();
    return pages;
}

/* Blocks in quick lists are joined to serve another size. A page comes with them where they are few of very many and
   there is room. */
static void few_kept_blocks_come_with_a_page(void **state)
{
    (void)state;
    enum { BLOCKS = 16384, FEW = BLOCKS / SG_QUICK_SHARE };
    assert_int_equal(pages_for_larger_ones("", 2 * BLOCKS / 4, false), 1);
    assert_int_equal(pages_for_larger_ones("", 2 * BLOCKS / FEW, false), 1);
    assert_int_equal(pages_for_larger_ones("", 2 * BLOCKS / (2 * FEW), false), 0);
    assert_int_equal(pages_for_larger_ones("", 2 * BLOCKS / 4, true), 0);
    assert_int_equal(pages_for_larger_ones("limit:8MiB", 2 * BLOCKS / 4, false), 0);
    assert_int_equal(pages_for_larger_ones("reserve_slack:1.0", 2 * BLOCKS / 4, false), 0);
}

/* Fills a device with blocks of 512 bytes, as far as it goes or `most`, and frees two neighbours. A block of 1024 is served by
   them, for nothing else is to be had, although the device is nearly empty. */
static void expect_neighbours_to_serve(const char *text, uint32_t most)
{
    static CUdeviceptr address[1 << 20];
    CUdeviceptr larger;
    uint32_t count = 0;
    start_with(text, 1, 4096 * SG_MIB);
    while (count < most && sg_core_malloc(core, 0, SG_UNIT, &tag, &address[count]) == CUDA_SUCCESS)
        count++;
    uint32_t regions = core->device[0]->regions.count;
    for (uint32_t i = 1000; i < 1002; i++)
        assert_int_equal(sg_core_free(core, address[i], &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, 2 * SG_UNIT, &tag, &larger), CUDA_SUCCESS);
    assert_int_equal(larger, address[1000]);
    assert_int_equal(core->device[0]->regions.count, regions);
    assert_int_equal(sg_core_free(core, larger, &tag), CUDA_SUCCESS);
    for (uint32_t i = 0; i < count; i++)
        if (i < 1000 || i > 1001)
            assert_int_equal(sg_core_free(core, address[i], &tag), CUDA_SUCCESS);
    stop();
}

static CUresult reserve_four(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr address,
    unsigned long long flags)
{
    return bytes > 4 * SG_MIB ? CUDA_ERROR_OUT_OF_MEMORY
                              : strict_driver.address_reserve(ret, bytes, alignment, address, flags);
}

static void kept_blocks_serve_where_no_page_can_be_made(void **state)
{
    (void)state;
    driver = strict_driver;
    expect_neighbours_to_serve("limit:3MiB", 4096); /* of which a page more would take four */
    driver.address_reserve = reserve_four;
    expect_neighbours_to_serve("", UINT32_MAX); /* as many regions as there may be, all mapped */
}

/* That is for small blocks: memory for a large one is more than a page, whoever is asking. */
static void large_kept_block_is_joined(void **state)
{
    (void)state;
    enum { SMALL = 2 * SG_QUICK_SHARE };
    static CUdeviceptr small[SMALL];
    CUdeviceptr half[2], behind, whole;
    driver = strict_driver;
    start_with("", 1, 512 * SG_MIB);
    for (int i = 0; i < SMALL; i++)
        assert_int_equal(sg_core_malloc(core, 0, SG_UNIT, &tag, &small[i]), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sg_core_malloc(core, 0, 8 * SG_MIB, &tag, &half[i]), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, 8 * SG_MIB, &tag, &behind), CUDA_SUCCESS);
    uint64_t before = core->device[0]->accounts.usage.reserved.now;
    for (int i = 1; i >= 0; i--) /* the second one is kept for nobody */
        assert_int_equal(sg_core_free(core, half[i], &tag), CUDA_SUCCESS);
    const struct sg_stream_id id = {.key = 1, .handle = (CUstream)(uintptr_t)1, .flags = SG_STREAM_UNFENCEABLE};
    const struct sg_tag of_stream = {.slot = sg_core_slot(core, 0, &id), .sync = SG_FREE_SYNC_STREAM};
    assert_int_equal(sg_core_malloc(core, 0, 16 * SG_MIB, &of_stream, &whole), CUDA_SUCCESS);
    assert_int_equal(core->device[0]->accounts.usage.reserved.now, before);
    assert_int_equal(sg_core_free(core, behind, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, whole, &tag), CUDA_SUCCESS);
    for (int i = 0; i < SMALL; i++)
        assert_int_equal(sg_core_free(core, small[i], &tag), CUDA_SUCCESS);
    stop();
}

/* A region is no longer than units can be counted; what is larger is refused, and what is just so large as well, where
   its pages do not fit. */
static void blocks_that_no_region_holds(void **state)
{
    (void)state;
    const uint64_t most = (uint64_t)INT32_MAX << SG_UNIT_SHIFT;
    static const uint64_t more[] = {0, SG_UNIT, SG_TIB};
    CUdeviceptr address = 5;
    driver = strict_driver;
    start_with("", 1, 3 * SG_TIB / 2);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        assert_int_equal(sg_core_malloc(core, 0, most + more[i], &tag, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(address, 5);
    assert_int_equal(sg_core_malloc(core, 0, most / (2 * SG_MIB) * (2 * SG_MIB), &tag, &address), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    inspect(core, 1);
    stop();
}

/* The addresses of a huge block serve the next one, also when that is as large as they are. */
static void addresses_of_a_huge_block_are_used_again(void **state)
{
    CUdeviceptr first, second;
    struct sg_stats stats;
    (void)state;
    driver = strict_driver;
    start_with("", 1, 64 * SG_MIB);
    assert_int_equal(sg_core_malloc(core, 0, 64 * SG_MIB, &tag, &first), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, first, &tag), CUDA_SUCCESS);
    assert_true(sg_core_stats(core, 0, &stats));
    uint64_t reserves = stats.value[SG_STAT_calls_reserve];
    sg_core_trim(core, 0, 0);
    assert_int_equal(sg_core_malloc(core, 0, 64 * SG_MIB, &tag, &second), CUDA_SUCCESS);
    assert_int_equal(second, first);
    assert_true(sg_core_stats(core, 0, &stats));
    assert_int_equal(stats.value[SG_STAT_calls_reserve], reserves);
    assert_int_equal(sg_core_free(core, second, &tag), CUDA_SUCCESS);
    stop();
}

/* Those of a smaller one serve one that is as large as they are. */
static void addresses_of_a_huge_block_serve_a_larger_one(void **state)
{
    CUdeviceptr first, second;
    (void)state;
    driver = strict_driver;
    start_with("", 1, 64 * SG_MIB);
    assert_int_equal(sg_core_malloc(core, 0, 40 * SG_MIB, &tag, &first), CUDA_SUCCESS);
    assert_int_equal(sg_core_free(core, first, &tag), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, 64 * SG_MIB, &tag, &second), CUDA_SUCCESS);
    assert_int_equal(second, first);
    assert_int_equal(core->device[0]->regions.count, 1);
    assert_int_equal(sg_core_free(core, second, &tag), CUDA_SUCCESS);
    stop();
}

/* Its page stays where there are no nodes to take it out with, and goes back later. */
static void huge_block_without_nodes(void **state)
{
    CUdeviceptr address;
    (void)state;
    driver = strict_driver;
    start_with("", 1, 64 * SG_MIB);
    assert_int_equal(sg_core_malloc(core, 0, 40 * SG_MIB, &tag, &address), CUDA_SUCCESS);
    struct sg_extents *extents = &core->device[0]->regions.extents;
    uint32_t live = extents->live;
    extents->live = extents->capacity - 500;
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    extents->live = live;
    assert_int_equal(strict_used(0), 40 * SG_MIB);
    inspect(core, 1);
    assert_int_equal(sg_core_trim(core, 0, 0), 40 * SG_MIB);
    assert_int_equal(strict_used(0), 0);
    stop();
}

/* What others have of the card counts in steps of a part of it. */
static CUresult info_with_others(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = 64 * SG_MIB;
    *free_bytes = 64 * SG_MIB - strict_used(0) - (5 * SG_MIB + 100 * SG_KIB);
    return CUDA_SUCCESS;
}

static void memory_of_others_counts_in_steps(void **state)
{
    (void)state;
    CUdeviceptr address[2];
    driver = strict_driver;
    driver.mem_info = info_with_others;
    start_with("", 1, 64 * SG_MIB);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address[i]), CUDA_SUCCESS);
        assert_int_equal(core->device[0]->room.outside_bytes, 5 * SG_MIB);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(sg_core_free(core, address[i], &tag), CUDA_SUCCESS);
    stop();
}

/* cuMemGetInfo speaks of `told_total` MiB where cuDeviceTotalMem says 64, and others have five. */
static uint64_t told_total, told_free;

static CUresult info_of_another_total(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = told_total * SG_MIB;
    *free_bytes = told_free * SG_MIB - strict_used(0);
    return CUDA_SUCCESS;
}

static CUresult device_of_ours(CUdevice *ret)
{
    *ret = 0;
    return CUDA_SUCCESS;
}

static void totals_that_differ(void **state)
{
    static const struct {
        uint64_t total, free, outside;
    } told[] = {
        {64, 59, 5},
        {63, 58, 5},  /* the driver keeps a little for itself */
        {66, 61, 5},
        {32, 27, 37}, /* a quota: what is beyond it is not to be had */
        {32, 32, 32},
        {128, 59, 5}, /* ours is the quota */
        {128, 123, 0},
    };
    (void)state;
    driver = strict_driver;
    for (unsigned i = 0; i < 2 * sizeof told / sizeof *told; i++) {
        CUdeviceptr address;
        driver.mem_info = info_of_another_total;
        driver.ctx_get_device = i % 2 ? device_of_ours : NULL;
        told_total = told[i / 2].total;
        told_free = told[i / 2].free;
        start_with("", 1, 64 * SG_MIB);
        assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address), CUDA_SUCCESS);
        assert_int_equal(core->device[0]->room.outside_bytes, told[i / 2].outside * SG_MIB);
        assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
        stop();
    }
}

/* The driver's refusal is remembered by what there was at that time, with the pages that were made by then. */
enum { ALL_THAT_THERE_IS = 20 };

static CUresult create_few(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    return strict_used(0) + bytes > ALL_THAT_THERE_IS * SG_MIB ? CUDA_ERROR_OUT_OF_MEMORY
                                                              : strict_driver.create(ret, bytes, prop, flags);
}

static void refusal_is_remembered(void **state)
{
    (void)state;
    CUdeviceptr first, second = 5;
    driver = strict_driver;
    driver.create = create_few;
    start_with("", 1, 64 * SG_MIB);
    assert_int_equal(sg_core_malloc(core, 0, 8 * SG_MIB, &tag, &first), CUDA_SUCCESS);
    assert_int_equal(sg_core_malloc(core, 0, 16 * SG_MIB, &tag, &second), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(second, 5);
    assert_int_equal(core->device[0]->room.refused_at, ALL_THAT_THERE_IS * SG_MIB);
    inspect(core, 1);
    assert_int_equal(sg_core_free(core, first, &tag), CUDA_SUCCESS);
    stop();
}

/* The current context may be another device's: what that one has free says nothing of ours. */
static CUresult info_of_another(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = 0;
    *total_bytes = SG_GIB;
    return CUDA_SUCCESS;
}

static CUresult device_of_another(CUdevice *ret)
{
    *ret = 1;
    return CUDA_SUCCESS;
}

static void memory_of_another_device(void **state)
{
    (void)state;
    CUdeviceptr address;
    driver = strict_driver;
    driver.mem_info = info_of_another;
    driver.ctx_get_device = device_of_another;
    start_with("", 1, 64 * SG_MIB);
    assert_int_equal(sg_core_malloc(core, 0, 3 * SG_MIB, &tag, &address), CUDA_SUCCESS);
    assert_int_equal(core->device[0]->room.outside_bytes, 0);
    assert_int_equal(sg_core_free(core, address, &tag), CUDA_SUCCESS);
    stop();
}

/* A page is a sixteenth of the device at most. On 128 MiB, three blocks of 8 MiB hold 24 MiB, not three pages of 32. */
static void pages_are_a_small_share_of_the_device(void **state)
{
    enum { BLOCKS = 12, KEPT_OF = 4, PAGE = 8 << 20 };
    static const struct {
        const char *conf;
        uint64_t total, page;
    } cases[] = {
        {"page_size_mb:32", 128 * SG_MIB, PAGE}, {"page_size_mb:1024", 128 * SG_MIB, PAGE},
        {"page_size_mb:8", 128 * SG_MIB, PAGE}, {"page_size_mb:6", 128 * SG_MIB, 6 * SG_MIB},
        {"page_size_mb:32", 511 * SG_MIB, 30 * SG_MIB}, /* whole granules */
        {"page_size_mb:32", 30 * SG_MIB, 2 * SG_MIB},   /* a granule at least */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CUdeviceptr block[BLOCKS];
        start_with(cases[i].conf, 1, cases[i].total);
        uint64_t bytes = cases[i].total / 16;
        for (int j = 0; j < BLOCKS; j++)
            assert_int_equal(sg_core_malloc(core, 0, bytes, &tag, &block[j]), CUDA_SUCCESS);
        assert_int_equal(core->device[0]->regions.page_bytes[SG_KIND_REGULAR], cases[i].page);
        for (int j = 0; j < BLOCKS; j++)
            if (j % KEPT_OF)
                assert_int_equal(sg_core_free(core, block[j], &tag), CUDA_SUCCESS);
        (void)sg_core_trim(core, 0, 0);
        uint64_t held = core->device[0]->accounts.usage.reserved.now;
        assert_in_range(held, BLOCKS / KEPT_OF * bytes, BLOCKS / KEPT_OF * (bytes + 2 * cases[i].page));
        stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_makes_a_device_unfit),
        cmocka_unit_test(probe_that_fails),
        cmocka_unit_test(as_many_regions_as_there_may_be),
        cmocka_unit_test(as_many_ranges_as_there_may_be),
        cmocka_unit_test(few_kept_blocks_come_with_a_page),
        cmocka_unit_test(kept_blocks_serve_where_no_page_can_be_made),
        cmocka_unit_test(large_kept_block_is_joined),
        cmocka_unit_test(blocks_that_no_region_holds),
        cmocka_unit_test(memory_of_another_device),
        cmocka_unit_test(totals_that_differ),
        cmocka_unit_test(kinds_of_pages),
        cmocka_unit_test(addresses_of_a_huge_block_are_used_again),
        cmocka_unit_test(addresses_of_a_huge_block_serve_a_larger_one),
        cmocka_unit_test(huge_block_without_nodes),
        cmocka_unit_test(memory_of_others_counts_in_steps),
        cmocka_unit_test(refusal_is_remembered),
        cmocka_unit_test(pages_are_a_small_share_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
