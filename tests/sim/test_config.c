/* The settings themselves, and what the driver does with those that make calls fail. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "config.h"
#include "api/extra_calls.h"
#include "sim_test.h"

static void good_settings(void **state)
{
    (void)state;
    struct sim_config config;
    assert_null(sim_config_parse(NULL, &config));
    assert_int_equal(config.bytes, 24 * GIB);
    assert_int_equal(config.driver, 13000);
    assert_int_equal(config.depth, 1024);
    assert_null(sim_config_parse("79.18GiB,count=2,driver=12.4,no-vmm,no-p2p,depth=16,kernel_us=5,vmm_sync=always",
        &config));
    assert_int_equal(config.bytes % (2 * MIB), 0);
    assert_int_equal(config.bytes / MIB, 81080);
    assert_int_equal(config.devices, 2);
    assert_int_equal(config.driver, 12040);
    assert_false(config.vmm);
    assert_false(config.peers);
    assert_true(config.posix_handles);
    assert_int_equal(config.depth, 16);
    assert_int_equal(config.kernel_ns, 5000);
    assert_int_equal(config.vmm_sync, SIM_VMM_SYNC_ALWAYS);
    assert_false(config.hazard || config.scheduled);
    assert_true(config.run_ahead < 0);
    assert_null(sim_config_parse("1GiB,hazard=all,hazard_exit=3,schedule=7,run_ahead=30", &config));
    assert_true(config.hazard && config.hazard_all && config.scheduled);
    assert_int_equal(config.hazard_exit, 3);
    assert_int_equal(config.seed, 7);
    assert_int_equal(config.run_ahead, 30);
    assert_true(config.mappings == 524288 && config.mappings_code == CUDA_ERROR_OUT_OF_MEMORY &&
                !config.managed_apart && !config.aliases_apart);
    assert_null(sim_config_parse("1GiB,mappings=1000,managed-apart,aliases-apart", &config));
    assert_int_equal(config.aliases_apart, UINT32_MAX);
    assert_null(sim_config_parse("1GiB,count=3,aliases-apart=2,aliases-apart=0", &config));
    assert_int_equal(config.aliases_apart, 5);
    assert_non_null(sim_config_parse("1GiB,aliases-apart=16", &config));
    assert_non_null(sim_config_parse("1GiB,aliases-apart=", &config));
    assert_null(sim_config_parse("1GiB,mappings=1000,managed-apart", &config));
    assert_true(config.mappings == 1000 && config.mappings_code == CUDA_ERROR_OUT_OF_MEMORY && config.managed_apart);
    assert_true(config.rdma);
    assert_null(sim_config_parse("device=h100,driver=12.4", &config));
    assert_string_equal(sim_config_device_name(&config), "NVIDIA H100 80GB HBM3");
    assert_int_equal(config.bytes, 81008 * MIB);
    assert_null(sim_config_parse("8GiB,device=h100", &config)); /* part of one */
    assert_int_equal(config.bytes, 8192 * MIB);
    assert_non_null(sim_config_parse("1GiB,device=h100", &config)); /* less than its driver keeps, nearly */
    assert_non_null(sim_config_parse("device=h", &config));
    assert_non_null(sim_config_parse("device", &config));
    static const char *const cards[] = {
#define CARD(name, mib, rest_mib) name,
#include "cards.def"
    };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) { /* each has its model, and the capability of that is known */
        char spec[64];
        int shared;
        snprintf(spec, sizeof spec, "1GiB,model=%s", cards[i]);
        assert_null(sim_config_parse(spec, &config));
        assert_true(config.bytes == 1024 * MIB && !config.keeps);
        const struct sim_capability *capability = sim_model_capability(config.model);
        assert_true(capability->major == config.model->major && capability->minor == config.model->minor);
        assert_true(sim_model_attribute(config.model, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared));
        assert_int_equal(shared, (capability->shared_kib - capability->reserved_kib) * 1024);
    }
    assert_non_null(sim_config_parse("1GiB,model", &config));
    assert_non_null(sim_config_parse("1GiB,model=h", &config));
    assert_null(sim_config_parse("1GiB,no-rdma", &config));
    assert_false(config.rdma);
    assert_null(sim_config_parse("1GiB,quota_mb=600", &config));
    assert_true(config.bytes == GIB && config.quota_bytes == 600 * MIB);
    assert_null(sim_config_parse("1GiB,mappings=1:CUDA_ERROR_UNKNOWN", &config));
    assert_true(config.mappings == 1 && config.mappings_code == CUDA_ERROR_UNKNOWN);
    assert_true(config.host_pages && config.host_bytes == UINT64_MAX && config.host_granule == 2 * MIB);
    assert_null(sim_config_parse("1GiB,hostpages=3GiB:4MiB", &config));
    assert_true(config.host_pages && config.host_bytes == 3 * GIB && config.host_granule == 4 * MIB);
    assert_null(sim_config_parse("1GiB,hostpages=off", &config));
    assert_false(config.host_pages);
    assert_null(sim_config_parse("1GiB,cost=cuMemMap:0,cost=cuMemUnmap:5+1000000000", &config));
    assert_int_equal(config.cost_count, 2);
    assert_true(strcmp(config.costs[0].symbol, "cuMemMap") == 0 && config.costs[0].call_ns == 0 &&
                config.costs[0].handle_ns == 0);
    assert_true(config.costs[1].call_ns == 5 && config.costs[1].handle_ns == 1000000000);
    assert_null(sim_config_parse("1GiB,fail=cuMemCreate:3,fail=cuMemMap:2+:CUDA_ERROR_UNKNOWN", &config));
    assert_int_equal(config.fault_count, 2);
    assert_string_equal(config.faults[0].name, "cuMemCreate");
    assert_int_equal(config.faults[0].at, 3);
    assert_false(config.faults[0].onward);
    assert_int_equal(config.faults[0].code, CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(config.faults[1].onward);
    assert_int_equal(config.faults[1].code, CUDA_ERROR_UNKNOWN);
}

static void bad_settings(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "big", "1MiB", "24GiB,", "24GiB,count", "24GiB,count=17", "24GiB,count=-1",
        "24GiB,driver=12", "24GiB,driver=12.4x", "24GiB,depth=0", "24GiB,vmm_sync=maybe", "24GiB,fail=cuMemCreate",
        "24GiB,fail=cuMemCreate:0", "24GiB,fail=cuMemCreate:1:NONSENSE", "24GiB,novmm", "-1GiB", "24GiB,hazard=some",
        "24GiB,hazard_exit=0", "24GiB,schedule", "24GiB,run_ahead=-1", "24GiB,mappings", "24GiB,mappings=0",
        "24GiB,mappings=5:NONSENSE", "24GiB,mappings=:2", "24GiB,cost", "24GiB,cost=cuMemMap", "24GiB,cost=:5",
        "24GiB,cost=cuMemMap:", "24GiB,cost=cuMemMap:5+", "24GiB,cost=cuMemMap:5+x", "24GiB,cost=cuMemMap:1000000001",
        "24GiB,managed-apart=1", "24GiB,hostpages", "24GiB,hostpages=on", "24GiB,hostpages=off:2MiB",
        "24GiB,hostpages=1GiB:", "24GiB,hostpages=1GiB:3MiB", "24GiB,hostpages=1GiB:0MiB"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sim_config config = {.bytes = 77};
        const char *message = sim_config_parse(bad[i], &config);
        if (!message)
            fail_msg("\"%s\" was accepted", bad[i]);
        assert_non_null(strstr(message, "SEGALLOC_SIM"));
        assert_null(strchr(message, '\n'));
        assert_int_equal(config.bytes, 77);
    }
}

/* The environment of this test: fail=cuMemAlloc:2,fail=cuMemCreate:2+:CUDA_ERROR_NOT_PERMITTED */
static void injected_failures(void **state)
{
    (void)state;
    CUdeviceptr a, b;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = on_device(0);
    ok(cuMemAlloc_v2(&a, 512));
    expect_error(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 512));
    ok(cuMemAlloc_v2(&b, 512));
    ok(cuMemFree_v2(a));
    ok(cuMemFree_v2(b));
    ok(cuMemCreate(&handle, PAGE, &prop, 0));
    ok(cuMemRelease(handle));
    for (unsigned i = 0; i < 5; i++)
        expect_error(CUDA_ERROR_NOT_PERMITTED, cuMemCreate(&handle, PAGE, &prop, 0));
    assert_int_equal(free_bytes(), 256 * MIB);
}

static void calls_are_counted(void **state)
{
    (void)state;
    segalloc_sim_calls_fn calls = (segalloc_sim_calls_fn)dlsym(RTLD_DEFAULT, "segalloc_sim_calls");
    segalloc_sim_ns_fn ns = (segalloc_sim_ns_fn)dlsym(RTLD_DEFAULT, "segalloc_sim_ns");
    assert_non_null(calls);
    assert_non_null(ns);
    size_t count = calls(NULL, 0);
    struct segalloc_sim_call *rows = calloc(count, sizeof *rows);
    assert_int_equal(calls(rows, count), count);
    uint64_t made = 0, spent = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].symbol, "cuMemCreate") == 0)
            made = rows[i].calls;
        spent += rows[i].ns;
    }
    assert_int_equal(made, 6);
    assert_int_equal(spent, ns());
    assert_true(spent > 0);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_settings),
        cmocka_unit_test(bad_settings),
        cmocka_unit_test(injected_failures),
        cmocka_unit_test(calls_are_counted),
    };
    return cmocka_run_group_tests(tests, use_device_0, leave_device_0);
}
