/* cuGetProcAddress by version and flags, on a driver that says it is 12.4. */
#include <dlfcn.h>
#include <stdlib.h>

#include "sim_test.h"

static void *ask(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult want)
{
    void *function = (void *)1;
    CUdriverProcAddressQueryResult status = 77;
    ok(cuGetProcAddress_v2(name, &function, version, flags, &status));
    if (status != want)
        fail_msg("%s, version %d: status %d, not %d", name, version, status, want);
    return function;
}

static void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        fail_msg("%s is not exported", name);
    return found;
}

static void a_name_is_answered_by_version(void **state)
{
    (void)state;
    int version;
    ok(cuDriverGetVersion(&version));
    assert_int_equal(version, 12040);
    const CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    assert_ptr_equal(ask("cuMemAlloc", 12000, 0, found), symbol("cuMemAlloc_v2"));
    assert_ptr_equal(ask("cuCtxCreate", 11030, 0, found), symbol("cuCtxCreate_v2"));
    assert_ptr_equal(ask("cuCtxCreate", 11040, 0, found), symbol("cuCtxCreate_v3"));
    assert_ptr_equal(ask("cuCtxCreate", 12040, 0, found), symbol("cuCtxCreate_v3"));
    assert_ptr_equal(ask("cuStreamGetCaptureInfo", 11020, 0, found), symbol("cuStreamGetCaptureInfo"));
    assert_ptr_equal(ask("cuStreamGetCaptureInfo", 11030, 0, found), symbol("cuStreamGetCaptureInfo_v2"));
    assert_ptr_equal(ask("cuGetProcAddress", 11030, 0, found), symbol("cuGetProcAddress"));
    assert_ptr_equal(ask("cuGetProcAddress", 12000, 0, found), symbol("cuGetProcAddress_v2"));
    assert_null(ask("cuMemAllocAsync", 10000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    assert_null(ask("cuNoSuchThing", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    assert_null(ask("cuMemAlloc_v2", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)); /* base names only */
    assert_null(ask("cuCtxRecordEvent", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)); /* of 12.5 */
}

static void a_name_is_answered_by_default_stream(void **state)
{
    (void)state;
    const CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    assert_ptr_equal(ask("cuMemcpyHtoD", 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, found), symbol("cuMemcpyHtoD_v2"));
    assert_ptr_equal(ask("cuMemcpyHtoD", 12000, per_thread, found), symbol("cuMemcpyHtoD_v2_ptds"));
    assert_null(ask("cuMemcpyHtoD", 6050, per_thread, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)); /* from 7.0 on */
    assert_ptr_equal(ask("cuMemcpyHtoD", 12000, 3, found), symbol("cuMemcpyHtoD_v2_ptds"));         /* both meanings */
    assert_ptr_equal(ask("cuLaunchKernel", 12000, per_thread, found), symbol("cuLaunchKernel_ptsz"));
    assert_ptr_equal(ask("cuMemAlloc", 12000, per_thread, found), symbol("cuMemAlloc_v2")); /* has no such form */
    void *function;
    CUdriverProcAddressQueryResult status;
    assert_ptr_equal(ask("cuGetProcAddress", 12000, per_thread, found), symbol("cuGetProcAddress_v2"));
    ok(cuGetProcAddress("cuLaunchKernel", &function, 12000, CU_GET_PROC_ADDRESS_DEFAULT));
    assert_ptr_equal(function, symbol("cuLaunchKernel"));
    ok(cuGetProcAddress_v2("cuLaunchKernel", &function, 12000, 0, NULL)); /* the status is optional */
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2("cuInit", &function, 12000, 8, &status));
    function = &status;
    expect_error(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuNoSuchThing", &function, 12000, 0));
    expect_error(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMemAllocAsync", &function, 10000, 0));
    assert_ptr_equal(function, &status);
}

/* A runtime newer than the driver asks for its own version, and gets the driver's newest form. */
static void newer_than_the_driver(void **state)
{
    (void)state;
    const CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    static const int newer[] = {12050, 13000, 99999, -1};
    for (unsigned i = 0; i < 4; i++) {
        assert_ptr_equal(ask("cuMemAlloc", newer[i], 0, found), symbol("cuMemAlloc_v2"));
        assert_ptr_equal(ask("cuCtxCreate", newer[i], 0, found), symbol("cuCtxCreate_v3"));
        assert_null(ask("cuCtxRecordEvent", newer[i], 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    }
    assert_ptr_equal(ask("cuMemAlloc", 3010, 0, found), symbol("cuMemAlloc")); /* of 32 bits */
}

/* The loader finds nothing newer than the driver either, and says so. */
static void the_loader_finds_nothing_newer_than_the_driver(void **state)
{
    (void)state;
    static const char *const absent[] = {"cuCtxRecordEvent", "cuCtxCreate_v4", "cuStreamGetCtx_v2_ptsz",
        "cuLogsCurrent", "cuGetProcAddress_v2_ptsz", "cuEventCreateFromEGLSync"};
    for (unsigned i = 0; i < sizeof absent / sizeof *absent; i++) {
        (void)dlerror();
        assert_null(dlsym(RTLD_DEFAULT, absent[i]));
        const char *error = dlerror();
        assert_non_null(error);
        assert_non_null(strstr(error, absent[i]));
    }
}

/* Each row of the table is exported under its symbol, and is found at the version it came with. */
static void every_entry_is_there(void **state)
{
    (void)state;
    static const struct {
        const char *name, *symbol, *variant;
        int version;
    } entries[] = {
#define ENTRY(name, symbol, version) {#name, #symbol, NULL, version},
#define ENTRY_STREAM(name, symbol, version, variant) {#name, #symbol, #variant, version},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
    };
    unsigned newer = 0;
    for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++) {
        if (entries[i].version > 12040) {
            newer++;
            assert_null(dlsym(RTLD_DEFAULT, entries[i].symbol));
            continue;
        }
        void *legacy = symbol(entries[i].symbol);
        assert_ptr_equal(ask(entries[i].name, entries[i].version, 0, CU_GET_PROC_ADDRESS_SUCCESS), legacy);
        if (entries[i].variant && entries[i].version >= 7000)
            assert_ptr_equal(ask(entries[i].name, entries[i].version, 2, CU_GET_PROC_ADDRESS_SUCCESS),
                symbol(entries[i].variant));
    }
    assert_true(newer >= 4);
}

/* What PyTorch 2.11 asks for before its first expandable segment; one that is missing is an assertion there. */
static void what_pytorch_asks_for(void **state)
{
    (void)state;
    static const char *const names[] = {"cuDeviceGet", "cuDeviceGetAttribute", "cuMemAddressReserve", "cuMemRelease",
        "cuMemMap", "cuMemAddressFree", "cuMemSetAccess", "cuMemUnmap", "cuMemCreate",
        "cuMemGetAllocationGranularity", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle",
        "cuMemRetainAllocationHandle", "cuMemGetAllocationPropertiesFromHandle", "cuMemsetD32Async",
        "cuStreamWriteValue32", "cuGetErrorString", "cuCtxFromGreenCtx", "cuCtxGetCurrent", "cuCtxPopCurrent",
        "cuCtxPushCurrent", "cuCtxSetCurrent", "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuGreenCtxStreamCreate",
        "cuDevSmResourceSplitByCount", "cuDeviceGetDevResource", "cuDevResourceGenerateDesc", "cuMulticastAddDevice",
        "cuMulticastBindMem", "cuMulticastCreate", "cuMulticastUnbind"};
    setenv("SEGALLOC_SIM", "256MiB", 1);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(ask(names[i], 12080, 0, CU_GET_PROC_ADDRESS_SUCCESS));
    setenv("SEGALLOC_SIM", "256MiB,driver=12.4", 1);
}

static void no_private_tables(void **state)
{
    (void)state;
    const void *table = &table;
    CUuuid id = {{1}};
    expect_error(CUDA_ERROR_INVALID_VALUE, cuGetExportTable(&table, &id));
    assert_null(table);
}

static void not_before_init(void **state)
{
    (void)state;
    int count;
    CUdeviceptr address;
    expect_error(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    expect_error(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&address, 512));
    expect_error(CUDA_ERROR_INVALID_VALUE, cuInit(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_answered_by_version), /* all of this works without cuInit */
        cmocka_unit_test(a_name_is_answered_by_default_stream),
        cmocka_unit_test(newer_than_the_driver),
        cmocka_unit_test(the_loader_finds_nothing_newer_than_the_driver),
        cmocka_unit_test(every_entry_is_there),
        cmocka_unit_test(what_pytorch_asks_for),
        cmocka_unit_test(no_private_tables),
        cmocka_unit_test(not_before_init),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
