/* Regions of a device stay within their number and size, and huge blocks use their addresses again. */
#include "device_steps.h"

/* Addresses for no more than what is asked for at least. */
static uint64_t addresses_most;

static CUresult reserve_few(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
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

/* A region is no longer than units can be counted. Larger blocks are refused, and blocks just as large where their
   pages do not fit. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_regions_as_there_may_be),
        cmocka_unit_test(as_many_ranges_as_there_may_be),
        cmocka_unit_test(few_kept_blocks_come_with_a_page),
        cmocka_unit_test(kept_blocks_serve_where_no_page_can_be_made),
        cmocka_unit_test(large_kept_block_is_joined),
        cmocka_unit_test(blocks_that_no_region_holds),
        cmocka_unit_test(addresses_of_a_huge_block_are_used_again),
        cmocka_unit_test(addresses_of_a_huge_block_serve_a_larger_one),
        cmocka_unit_test(huge_block_without_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
