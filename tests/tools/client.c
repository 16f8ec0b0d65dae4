/* A program that takes memory in the way that its argument names, through the driver API. */
#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef ERROR_NAMES
/* Some programs have a table of the runtime's errors for their messages. */
__attribute__((used)) static const char *const error_names[] = {"cudaErrorMemoryAllocation",
    "cudaErrorMapBufferObjectFailed"};
#endif

static void *driver;

static void *function(const char *name)
{
    void *found = dlsym(driver, name);
    if (!found)
        fprintf(stderr, "client: no %s\n", name);
    return found;
}

/* Runs the calls after this one only where it succeeded. */
#define CALL(name, types, ...) \
    do { \
        CUresult(*call) types = (CUresult(*) types)function(#name); \
        CUresult result = call ? call(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND; \
        if (result != CUDA_SUCCESS) { \
            fprintf(stderr, "client: %s: %d\n", #name, (int)result); \
            return 3; \
        } \
    } while (0)

static int ordinary(void)
{
    CUdeviceptr address[3];
    for (int i = 0; i < 3; i++)
        CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &address[i], (size_t)1 << (12 + 4 * i));
    for (int i = 0; i < 3; i++)
        CALL(cuMemFree_v2, (CUdeviceptr), address[i]);
    return 0;
}

/* More than half of a device of 64 MiB, by a stream of its own. */
static int ordered(void)
{
    CUstream stream;
    void *(*allocate)(size_t, void *) = (void *(*)(size_t, void *))dlsym(RTLD_DEFAULT, "segalloc_malloc_on");
    CALL(cuStreamCreate, (CUstream *, unsigned), &stream, 1u);
    for (int i = 0; i < 5 && allocate; i++)
        if (!allocate((size_t)8 << 20, stream))
            return 3;
    return allocate ? 0 : 3;
}

/* Asks for a capture that a graphics interface would submit, which this device can't do. */
static int graphics(void)
{
    CUresult (*begin)(CUstream, void *) = NULL;
    CUdriverProcAddressQueryResult status;
    CALL(cuGetProcAddress_v2, (const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *),
        "cuStreamBeginCaptureToCig", (void **)&begin, 13010, 0, &status);
    (void)begin(NULL, NULL);
    return ordinary();
}

static int pooled(void)
{
    CUdeviceptr address;
    CALL(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), &address, 1 << 20, NULL);
    CALL(cuMemFreeAsync, (CUdeviceptr, CUstream), address, NULL);
    return 0;
}

static int virtual_memory(void)
{
    CUmemGenericAllocationHandle handle;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CALL(cuMemCreate, (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long),
        &handle, (size_t)2 << 20, &prop, 0);
    CALL(cuMemRelease, (CUmemGenericAllocationHandle), handle);
    return 0;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    CUcontext context;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "client: %s\n", dlerror());
        return 2;
    }
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice), &context, 0);
    CALL(cuCtxSetCurrent, (CUcontext), context);
    if (strcmp(way, "ordinary") == 0)
        return ordinary();
    if (strcmp(way, "ordered") == 0)
        return ordered();
    if (strcmp(way, "graphics") == 0)
        return graphics();
    if (strcmp(way, "pooled") == 0)
        return pooled();
    if (strcmp(way, "virtual") == 0)
        return virtual_memory();
    return 0;
}
