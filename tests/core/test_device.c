/* Devices are found fit or unfit, and the best kind of page is chosen. */
#include "device_steps.h"

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
    /* A failure is short to the byte, not to the step. */
    CUdeviceptr none;
    struct sg_shortage shortage;
    assert_int_equal(sg_core_malloc(core, 0, 60 * SG_MIB, &tag, &none), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(sg_core_shortage(core, 0, &shortage));
    assert_int_equal(shortage.outside, 5 * SG_MIB + 100 * SG_KIB);
    assert_int_equal(shortage.short_by + shortage.idle + shortage.room, 60 * SG_MIB);
    assert_int_equal(shortage.room, 64 * SG_MIB - strict_used(0) - shortage.outside);
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
        cmocka_unit_test(memory_of_another_device),
        cmocka_unit_test(totals_that_differ),
        cmocka_unit_test(kinds_of_pages),
        cmocka_unit_test(memory_of_others_counts_in_steps),
        cmocka_unit_test(refusal_is_remembered),
        cmocka_unit_test(pages_are_a_small_share_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
