/* The machine has so many mappings, for all devices and processes together: each takes one on each device that has
   access. Settings: mappings=10:CUDA_ERROR_UNKNOWN, two devices, a card with a name. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_test.h"

enum { MOST = 10 };

static CUmemAccessDesc both[2];

static CUdeviceptr reserve(size_t pages)
{
    CUdeviceptr address;
    ok(cuMemAddressReserve(&address, pages * PAGE, 0, 0, 0));
    return address;
}

static void map(CUdeviceptr address, size_t pages)
{
    CUmemAllocationProp prop = on_device(0);
    for (size_t i = 0; i < pages; i++) {
        CUmemGenericAllocationHandle page;
        ok(cuMemCreate(&page, PAGE, &prop, 0));
        ok(cuMemMap(address + i * PAGE, PAGE, 0, page, 0));
        ok(cuMemRelease(page));
    }
}

static void give_back(CUdeviceptr address, size_t pages)
{
    ok(cuMemUnmap(address, pages * PAGE));
    ok(cuMemAddressFree(address, pages * PAGE));
}

/* How many are left, by taking as many. */
static int left(void)
{
    CUdeviceptr address = reserve(MOST + 1);
    int count = 0;
    map(address, MOST + 1); /* mapped without access they take none */
    while (count <= MOST && cuMemSetAccess(address + (size_t)count * PAGE, PAGE, both, 1) == CUDA_SUCCESS)
        count++;
    expect_error(CUDA_ERROR_UNKNOWN, cuMemSetAccess(address + (size_t)count * PAGE, PAGE, both, 1));
    give_back(address, MOST + 1);
    return count;
}

static void each_device_takes_its_own(void **state)
{
    (void)state;
    CUdeviceptr address = reserve(6);
    assert_int_equal(left(), MOST);
    map(address, 6);
    expect_error(CUDA_ERROR_UNKNOWN, cuMemSetAccess(address, 6 * PAGE, both, 2));
    assert_int_equal(left(), MOST); /* nothing has changed */
    ok(cuMemSetAccess(address, 6 * PAGE, both, 1));
    ok(cuMemSetAccess(address, 6 * PAGE, both, 1)); /* they have it already */
    assert_int_equal(left(), MOST - 6);
    ok(cuMemSetAccess(address, 4 * PAGE, both + 1, 1));
    assert_int_equal(left(), 0);
    both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    ok(cuMemSetAccess(address, 3 * PAGE, both + 1, 1));
    both[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    assert_int_equal(left(), 3);
    ok(cuMemUnmap(address, 2 * PAGE));
    ok(cuMemUnmap(address + 2 * PAGE, 4 * PAGE));
    ok(cuMemAddressFree(address, 6 * PAGE));
    assert_int_equal(left(), MOST);
}

static void a_part_keeps_the_whole(void **state)
{
    (void)state;
    CUmemAllocationProp prop = on_device(0);
    CUmemGenericAllocationHandle page;
    CUdeviceptr address = reserve(4);
    ok(cuMemCreate(&page, 4 * PAGE, &prop, 0));
    ok(cuMemMap(address, 4 * PAGE, 0, page, 0));
    ok(cuMemSetAccess(address, PAGE, both, 1));
    ok(cuMemSetAccess(address + PAGE, PAGE, both, 1));
    assert_int_equal(left(), MOST - 1);
    both[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    ok(cuMemSetAccess(address, PAGE, both, 1));
    both[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    assert_int_equal(left(), MOST - 1);
    give_back(address, 4);
    ok(cuMemRelease(page));
}

static void plain_memory_takes_one_too(void **state)
{
    (void)state;
    CUdeviceptr block[MOST], small, one;
    for (int i = 0; i < MOST; i++)
        ok(cuMemAlloc_v2(&block[i], PAGE));
    ok(cuMemAlloc_v2(&small, 1000)); /* shares its page with others */
    expect_error(CUDA_ERROR_UNKNOWN, cuMemAlloc_v2(&one, PAGE));
    assert_int_equal(left(), 0);
    for (int i = 0; i < MOST; i++)
        ok(cuMemFree_v2(block[i]));
    ok(cuMemFree_v2(small));
    ok(cuMemAlloc_v2(&one, PAGE));
    ok(cuMemFree_v2(one));
    assert_int_equal(left(), MOST);
}

/* Another process of the machine has four until it ends. */
static void processes_share_them(void **state)
{
    int ready[2], go[2];
    char byte;
    assert_true(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        (void)use_device_0(state);
        CUdeviceptr address = reserve(4);
        map(address, 4);
        CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        bool done = cuMemSetAccess(address, 4 * PAGE, &access, 1) == CUDA_SUCCESS;
        _exit(!(done && write(ready[1], "x", 1) == 1 && read(go[0], &byte, 1) == 1));
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)use_device_0(state); /* the process could not fork after that */
    assert_int_equal(left(), MOST - 4);
    assert_int_equal(write(go[1], "x", 1), 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(left(), MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share_them), /* first */
        cmocka_unit_test(each_device_takes_its_own),
        cmocka_unit_test(a_part_keeps_the_whole),
        cmocka_unit_test(plain_memory_takes_one_too),
    };
    char spec[100];
    snprintf(spec, sizeof spec, "256MiB,count=2,mappings=%d:CUDA_ERROR_UNKNOWN,card=mappings-%d", MOST, (int)getpid());
    setenv("SEGALLOC_SIM", spec, 1);
    for (int i = 0; i < 2; i++)
        both[i] = access_of(i, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    int failed = cmocka_run_group_tests(tests, NULL, leave_device_0);
    snprintf(spec, sizeof spec, "/dev/shm/segalloc-sim-%u-mappings-%d", (unsigned)geteuid(), (int)getpid());
    unlink(spec);
    return failed;
}
