/* One card for several processes: what each holds counts against all, until it ends, however it ends. */
#include "sim_test.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/extra_calls.h"

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

static struct segalloc_sim_managed managed_of_this_process(void)
{
    struct segalloc_sim_managed state = {0};
    segalloc_sim_managed_fn ask;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "segalloc_sim_managed");
    assert_int_equal(ask(0, &state), 0);
    return state;
}

enum { MANAGED = 300 };

/* Touches its managed memory at each 't', and answers at each byte how much of it is on the device. */
static void hold_managed(int in, int out)
{
    char command = 't';
    begin();
    CUdeviceptr address;
    ok(cuMemAllocManaged(&address, MANAGED * MIB, CU_MEM_ATTACH_GLOBAL));
    do {
        if (command == 't') {
            ok(cuMemsetD8Async(address, 1, MANAGED * MIB, NULL));
            ok(cuCtxSynchronize());
        }
        struct segalloc_sim_managed state = managed_of_this_process();
        (void)!write(out, &state, sizeof state);
    } while (read(in, &command, 1) == 1);
    ok(cuMemFree_v2(address));
    _exit(0);
}

static struct segalloc_sim_managed held(const int pipes[2], char command)
{
    struct segalloc_sim_managed state;
    if (command)
        assert_int_equal(write(pipes[1], &command, 1), 1);
    assert_int_equal(read(pipes[0], &state, sizeof state), sizeof state);
    return state;
}

/* The driver moves it to the host for whoever needs room, whichever process made it. */
static void managed_memory_of_others_makes_room(void **state)
{
    (void)state;
    int to[2], from[2], status = 0;
    CUdeviceptr first, second, small, refused;
    assert_true(pipe(to) == 0 && pipe(from) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        hold_managed(to[0], from[1]);
    }
    const int pipes[] = {from[0], to[1]};
    close(to[0]);
    close(from[1]);
    begin();
    assert_int_equal(held(pipes, 0).resident_bytes, MANAGED * MIB);
    assert_int_equal(available(), (512 - MANAGED) * MIB);
    ok(cuMemAlloc_v2(&first, 400 * MIB));
    assert_int_equal(available(), 0);
    struct segalloc_sim_managed theirs = held(pipes, 'a');
    assert_int_equal(theirs.resident_bytes, 112 * MIB);
    assert_int_equal(theirs.evicted_pages, (MANAGED - 112) / 2);
    assert_int_equal(cuMemAlloc_v2(&refused, 113 * MIB),
        CUDA_ERROR_OUT_OF_MEMORY); /* a call that fails may have moved some */
    assert_int_equal(available(), 112 * MIB);
    assert_int_equal(held(pipes, 't').resident_bytes, 112 * MIB); /* no more of it has room at once */
    ok(cuMemAlloc_v2(&second, 110 * MIB));
    ok(cuMemAlloc_v2(&small, 1 * MIB)); /* half of the last piece is left, which then goes as a whole */
    assert_int_equal(held(pipes, 'a').resident_bytes, 0);
    assert_int_equal(available(), 1 * MIB);
    ok(cuMemFree_v2(first));
    ok(cuMemFree_v2(second));
    ok(cuMemFree_v2(small));
    assert_int_equal(held(pipes, 't').resident_bytes, MANAGED * MIB);
    assert_int_equal(available(), (512 - MANAGED) * MIB);
    ok(cuMemAlloc_v2(&first, 512 * MIB));
    close(to[1]); /* they free what others have taken */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(available(), 0);
    ok(cuMemFree_v2(first));
    assert_int_equal(available(), 512 * MIB);
    close(from[0]);
}

/* A child of a process that has used CUDA can't use it, so each test has a process of its own. */
static int failed(const struct CMUnitTest *test)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        exit(_cmocka_run_group_tests(test->name, test, 1, NULL, NULL));
    return waitpid(child, &status, 0) != child || status != 0;
}

int main(void)
{
    char setting[64], path[96];
    snprintf(setting, sizeof setting, "512MiB,card=test-%ld", (long)getpid());
    setenv("SEGALLOC_SIM", setting, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_share_one_card),
        cmocka_unit_test(managed_memory_of_others_makes_room)};
    int count = failed(&tests[0]) + failed(&tests[1]);
    snprintf(path, sizeof path, "/dev/shm/segalloc-sim-%u-test-%ld", (unsigned)geteuid(), (long)getpid());
    return count + (unlink(path) == 0); /* the last process has removed it */
}
