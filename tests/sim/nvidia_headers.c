/* A program that knows NVIDIA's own cuda.h only, as anybody would write one. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                            \
    do {                                                       \
        CUresult result_ = (call);                             \
        if (result_ != CUDA_SUCCESS) {                         \
            const char *name_ = "?";                           \
            cuGetErrorName(result_, &name_);                   \
            fprintf(stderr, "%s: %s\n", #call, name_);         \
            exit(1);                                           \
        }                                                      \
    } while (0)

#define EXPECT(condition)                                      \
    do {                                                       \
        if (!(condition)) {                                    \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            exit(1);                                           \
        }                                                      \
    } while (0)

static void CUDA_CB add_one(void *values)
{
    for (int i = 0; i < 256; i++)
        ((int *)values)[i]++;
}

static void compute(CUdeviceptr device, CUstream stream)
{
    int values[256];
    CUevent before, after;
    float ms = -1;
    for (int i = 0; i < 256; i++)
        values[i] = i;
    CHECK(cuEventCreate(&before, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&after, CU_EVENT_DEFAULT));
    CHECK(cuEventRecord(before, stream));
    CHECK(cuMemcpyHtoDAsync(device, values, sizeof values, stream));
    CHECK(cuLaunchHostFunc(stream, add_one, (void *)(size_t)device));
    CHECK(cuEventRecord(after, stream));
    memset(values, 0, sizeof values);
    CHECK(cuMemcpyDtoHAsync(values, device, sizeof values, stream));
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < 256; i++)
        EXPECT(values[i] == i + 1);
    CHECK(cuEventElapsedTime(&ms, before, after));
    EXPECT(ms >= 0);
    CHECK(cuEventDestroy(before));
    CHECK(cuEventDestroy(after));
}

static void virtual_memory(CUdevice device)
{
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t granule;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    CHECK(cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK(cuMemAddressReserve(&address, 4 * granule, 0, 0, 0));
    CHECK(cuMemCreate(&handle, granule, &prop, 0));
    CHECK(cuMemMap(address, granule, 0, handle, 0));
    CHECK(cuMemRelease(handle));
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemSetAccess(address, granule, &access, 1));
    CHECK(cuMemsetD32(address, 0x01020304, granule / 4));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemUnmap(address, granule));
    CHECK(cuMemAddressFree(address, 4 * granule));
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr memory;
    size_t before, after, total;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
#if CUDA_VERSION >= 13000
    CHECK(cuCtxCreate(&context, NULL, 0, device));
#else
    CHECK(cuCtxCreate(&context, 0, device));
#endif
    CHECK(cuMemGetInfo(&before, &total));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&memory, 1024));
    compute(memory, stream);
    CHECK(cuMemFree(memory));
    EXPECT(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAlloc(&memory, 2 * total) == CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(cuMemAllocAsync(&memory, 1 << 20, stream));
    CHECK(cuMemsetD8Async(memory, 1, 1 << 20, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    virtual_memory(device);
    CHECK(cuMemGetInfo(&after, &total));
    EXPECT(after == before);
    CHECK(cuStreamDestroy(stream));
    CHECK(cuCtxDestroy(context));
    puts("ok");
    return 0;
}
