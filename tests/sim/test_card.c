/* One card for several processes: what each holds counts against all, until it ends, however it ends. */
#include "sim_test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>


static void begin(void)
{
    CUcontext context;
    CUdevice device;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static size_t available(void)
{
    size_t bytes, total;
    assert_int_equal(cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
    assert_int_equal(total, 512 * MIB);
    return bytes;
}

/* Holds memory until it is killed; says through `out` when it does, with its device's id. */
static void hold(int out)
{
    CUdeviceptr address;
    CUuuid id;
    bool good = cuInit(0) == CUDA_SUCCESS;
    CUcontext context;
    good = good && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS &&
        cuMemAlloc_v2(&address, 300 * MIB) == CUDA_SUCCESS && cuDeviceGetUuid_v2(&id, 0) == CUDA_SUCCESS;
    if (good && write(out, &id, sizeof id) == sizeof id)
        pause();
    _exit(1);
}

static void processes_share_one_card(void **state)
{
    (void)state;
    int pipes[2];
    CUuuid theirs, ours;
    CUdeviceptr address;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        hold(pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &theirs, sizeof theirs), sizeof theirs);
    begin();
    assert_int_equal(cuDeviceGetUuid_v2(&ours, 0), CUDA_SUCCESS);
    assert_memory_equal(&theirs, &ours, sizeof ours);
    assert_int_equal(available(), 212 * MIB);
    assert_int_equal(cuMemAlloc_v2(&address, 213 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(cuMemAlloc_v2(&address, 212 * MIB), CUDA_SUCCESS);
    assert_int_equal(available(), 0);
    /* Dead, though nobody has asked for its status yet. */
    siginfo_t info;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(available(), 300 * MIB);
    assert_int_equal(cuMemFree_v2(address), CUDA_SUCCESS);
    assert_int_equal(available(), 512 * MIB);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

int main(void)
{
    char setting[64], path[96];
    snprintf(setting, sizeof setting, "512MiB,card=test-%ld", (long)getpid());
    setenv("SEGALLOC_SIM", setting, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_share_one_card)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "/dev/shm/segalloc-sim-%u-test-%ld", (unsigned)geteuid(), (long)getpid());
    return failed + (unlink(path) != 0);
}
