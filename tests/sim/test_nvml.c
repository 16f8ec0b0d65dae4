/* libnvidia-ml.so.1: what it says of two devices before the driver has begun, and of what the process holds of them
   after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda_proto.h"

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, BYTES = 64 << 20 };

struct memory {
    unsigned long long total, free, used;
};
struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *ret);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **ret);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **ret);
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **ret);
int nvmlDeviceGetUUID(void *device, char *ret, unsigned size);
int nvmlDeviceGetName(void *device, char *ret, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *ret);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *list);
int nvmlDeviceGetFanSpeed(void *device, unsigned *ret);
const char *nvmlErrorString(int result);

static void nvml_lists_the_devices(void **state)
{
    unsigned count = 0;
    void *device, *same;
    char uuid[80], name[80];
    (void)state;
    assert_int_equal(nvmlDeviceGetCount_v2(&count), 1); /* uninitialized */
    assert_int_equal(nvmlInit_v2(), 0);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(2, &device), INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(1, &device), 0);
    assert_int_equal(nvmlDeviceGetUUID(device, uuid, 10), INSUFFICIENT_SIZE);
    assert_int_equal(nvmlDeviceGetUUID(device, uuid, sizeof uuid), 0);
    assert_int_equal(strncmp(uuid, "GPU-", 4), 0);
    assert_int_equal(strlen(uuid), 40);
    assert_int_equal(nvmlDeviceGetHandleByUUID(uuid, &same), 0);
    assert_ptr_equal(same, device);
    assert_int_equal(nvmlDeviceGetHandleByUUID("GPU-0", &same), NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("00000000:02:00.0", &same), 0);
    assert_ptr_equal(same, device);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0000:03:00.0", &same), NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("here", &same), INVALID_ARGUMENT);
    assert_int_equal(nvmlDeviceGetName(device, name, sizeof name), 0);
    assert_non_null(strstr(name, "simulated"));
    assert_int_equal(nvmlDeviceGetFanSpeed(device, &count), NOT_SUPPORTED);
    assert_string_equal(nvmlErrorString(NOT_SUPPORTED), "Not Supported");
    assert_int_equal(nvmlShutdown(), 0);
    assert_int_equal(nvmlShutdown(), 1);
}

static struct memory memory_of(void *device)
{
    struct memory memory;
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), 0);
    assert_int_equal(memory.total, 1 << 30);
    assert_int_equal(memory.free + memory.used, memory.total);
    return memory;
}

static void nvml_says_who_holds_memory(void **state)
{
    void *device;
    unsigned count = 0;
    struct process list[4];
    CUcontext context;
    CUdeviceptr block;
    CUuuid id;
    char uuid[80], first[3];
    (void)state;
    assert_int_equal(nvmlInit_v2(), 0);
    assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), 0);
    assert_int_equal(memory_of(device).used, 0);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list), 0);
    assert_int_equal(count, 0);
    pid_t child = fork(); /* nobody has touched the driver, so a child may */
    if (child == 0)
        _exit(cuInit(0) != CUDA_SUCCESS);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
    count = 4; /* a process with a context is listed before it holds anything */
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list), 0);
    assert_true(count == 1 && list[0].pid == (unsigned)getpid() && list[0].used == 0);
    count = 0;
    assert_int_equal(cuMemAlloc_v2(&block, BYTES), CUDA_SUCCESS);
    assert_int_equal(memory_of(device).used, BYTES);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL), INSUFFICIENT_SIZE);
    assert_int_equal(count, 1);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list), 0);
    assert_int_equal(list[0].pid, getpid());
    assert_int_equal(list[0].used, BYTES);
    assert_int_equal(cuDeviceGetUuid(&id, 0), CUDA_SUCCESS);
    assert_int_equal(nvmlDeviceGetUUID(device, uuid, sizeof uuid), 0);
    snprintf(first, sizeof first, "%02x", (unsigned char)id.bytes[0]);
    assert_int_equal(strncmp(uuid + 4, first, 2), 0);
    child = fork(); /* asks for nothing that the parent's threads may hold */
    if (child == 0)
        _exit(memory_of(device).used != 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(cuMemFree_v2(block), CUDA_SUCCESS);
    assert_int_equal(memory_of(device).used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nvml_lists_the_devices),
        cmocka_unit_test(nvml_says_who_holds_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
