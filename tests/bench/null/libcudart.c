/* A runtime with nothing of its own between a call and the driver. */
#include "null.h"

#include <dlfcn.h>
#include <string.h>

#include "cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

static CUresult (*mem_alloc)(CUdeviceptr *ret, size_t bytes);
static CUresult (*mem_free)(CUdeviceptr address);

static void *driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}

/* Asks for the driver's functions as the real runtime does, so that whoever answers dlsym is asked. */
static void resolve(void)
{
    void *found = driver_function("cuMemAlloc_v2");
    memcpy(&mem_alloc, &found, sizeof found);
    found = driver_function("cuMemFree_v2");
    memcpy(&mem_free, &found, sizeof found);
}

/* The first call of a thread makes its device's primary context known, as the real runtime's does. */
static void retain(void)
{
    static _Thread_local int retained;
    CUresult (*retain_primary)(CUcontext *ret, CUdevice device), (*get_device)(CUdevice *ret);
    CUcontext context;
    CUdevice device;
    if (retained)
        return;
    retained = 1;
    void *found = driver_function("cuCtxGetDevice");
    memcpy(&get_device, &found, sizeof found);
    found = driver_function("cuDevicePrimaryCtxRetain");
    memcpy(&retain_primary, &found, sizeof found);
    get_device(&device);
    retain_primary(&context, device);
}

EXPORT int cudaMalloc(void **ret, size_t bytes)
{
    if (!mem_alloc)
        resolve();
    retain();
    return (int)mem_alloc((CUdeviceptr *)(void *)ret, bytes);
}

EXPORT int cudaFree(void *address)
{
    return (int)mem_free((CUdeviceptr)(size_t)address);
}

EXPORT int cudaRuntimeGetVersion(int *ret)
{
    *ret = 13000;
    return 0;
}
