/* Memory: given out and taken back, on the device, on the host and in both. */
#include <string.h>

#include "context.h"
#include "entry.h"
#include "error.h"

/* cudaMallocPitch asks the driver for rows that words of four bytes can be read from. */
enum { PITCH_ELEMENT = 4 };

static void *memory_pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* `ret` is written on success only. */
static cudaError_t hand_out(CUresult result, CUdeviceptr address, void **ret)
{
    if (result == CUDA_SUCCESS)
        *ret = memory_pointer(address);
    return sg_rt_translate(result);
}

cudaError_t sg_cudaMalloc(const struct sg_rt_driver *driver, void **ret, size_t bytes)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    if (bytes == 0) {
        *ret = NULL;
        return cudaSuccess;
    }
    CUdeviceptr address = 0;
    CUresult result = driver->cuMemAlloc(&address, bytes);
    return hand_out(result, address, ret);
}

cudaError_t sg_cudaMallocPitch(const struct sg_rt_driver *driver, void **ret, size_t *pitch, size_t width,
                               size_t height)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret || !pitch)
        return cudaErrorInvalidValue;
    if (width == 0 || height == 0) {
        *ret = NULL;
        *pitch = 0;
        return cudaSuccess;
    }
    CUdeviceptr address = 0;
    size_t row = 0;
    CUresult result = driver->cuMemAllocPitch(&address, &row, width, height, PITCH_ELEMENT);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return hand_out(result, address, ret);
}

cudaError_t sg_cudaMalloc3D(const struct sg_rt_driver *driver, struct cudaPitchedPtr *ret, struct cudaExtent extent)
{
    if (!ret)
        return cudaErrorInvalidValue;
    size_t rows;
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
        return cudaErrorMemoryAllocation;
    struct cudaPitchedPtr made = {.xsize = extent.width, .ysize = extent.height};
    cudaError_t error = sg_cudaMallocPitch(driver, &made.ptr, &made.pitch, extent.width, rows);
    if (error == cudaSuccess)
        *ret = made;
    return error;
}

cudaError_t sg_cudaFree(const struct sg_rt_driver *driver, void *address)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || !address)
        return error;
    return sg_rt_translate(driver->cuMemFree(sg_rt_address(address)));
}

cudaError_t sg_cudaMallocManaged(const struct sg_rt_driver *driver, void **ret, size_t bytes, unsigned flags)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret || bytes == 0)
        return cudaErrorInvalidValue;
    CUdeviceptr address = 0;
    CUresult result = driver->cuMemAllocManaged(&address, bytes, flags);
    return hand_out(result, address, ret);
}

cudaError_t sg_cudaMallocHost(const struct sg_rt_driver *driver, void **ret, size_t bytes)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    if (bytes == 0) {
        *ret = NULL;
        return cudaSuccess;
    }
    return sg_rt_translate(driver->cuMemAllocHost(ret, bytes));
}

cudaError_t sg_cudaHostAlloc(const struct sg_rt_driver *driver, void **ret, size_t bytes, unsigned flags)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    if (bytes == 0) {
        *ret = NULL;
        return cudaSuccess;
    }
    return sg_rt_translate(driver->cuMemHostAlloc(ret, bytes, flags));
}

cudaError_t sg_cudaFreeHost(const struct sg_rt_driver *driver, void *address)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || !address)
        return error;
    return sg_rt_translate(driver->cuMemFreeHost(address));
}

cudaError_t sg_cudaHostGetDevicePointer(const struct sg_rt_driver *driver, void **ret, void *address, unsigned flags)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    CUdeviceptr device = 0;
    CUresult result = driver->cuMemHostGetDevicePointer(&device, address, flags);
    return hand_out(result, device, ret);
}

/* An address that the driver does not know is memory of the host that nobody registered: no error since CUDA 11. */
cudaError_t sg_cudaPointerGetAttributes(const struct sg_rt_driver *driver, struct cudaPointerAttributes *ret,
                                        const void *address)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    unsigned type = 0, managed = 0;
    int device = DEVICE_INVALID;
    CUdeviceptr device_address = 0;
    void *host_address = NULL;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    void *values[] = {&type, &managed, &device, &device_address, &host_address};
    CUresult result =
        driver->cuPointerGetAttributes(sizeof which / sizeof *which, which, values, sg_rt_address(address));
    if (result != CUDA_SUCCESS)
        return sg_rt_translate(result);
    memset(ret, 0, sizeof *ret);
    if (managed & 1)
        ret->type = MEMORY_MANAGED;
    else if (type == CU_MEMORYTYPE_DEVICE)
        ret->type = MEMORY_DEVICE;
    else if (type == CU_MEMORYTYPE_HOST)
        ret->type = MEMORY_HOST;
    else
        ret->type = MEMORY_UNREGISTERED;
    if (ret->type == MEMORY_UNREGISTERED) {
        ret->device = DEVICE_INVALID;
        ret->hostPointer = (void *)(uintptr_t)address;
        return cudaSuccess;
    }
    ret->device = device;
    ret->devicePointer = memory_pointer(device_address);
    ret->hostPointer = ret->type == MEMORY_DEVICE ? NULL : host_address;
    return cudaSuccess;
}

static cudaError_t memory_advise(const struct sg_rt_driver *driver, const void *address, size_t bytes,
    CUmem_advise advice, int device)
{
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess ? error
                                : sg_rt_translate(driver->cuMemAdvise(sg_rt_address(address), bytes, advice, device));
}

static cudaError_t memory_prefetch(const struct sg_rt_driver *driver, const void *address, size_t bytes, int device,
    CUstream stream)
{
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess
               ? error
               : sg_rt_translate(driver->cuMemPrefetchAsync(sg_rt_address(address), bytes, device, stream));
}

/* The driver's first form of these two knows the host as one place. */
static int device_of_location(CUmemLocation location)
{
    return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : CU_DEVICE_CPU;
}

#if CUDART_MAJOR == 12
cudaError_t sg_cudaMemAdvise(const struct sg_rt_driver *driver, const void *address, size_t bytes, CUmem_advise advice,
                             int device)
{
    return memory_advise(driver, address, bytes, advice, device);
}

cudaError_t sg_cudaMemAdvise_v2(const struct sg_rt_driver *driver, const void *address, size_t bytes,
                                CUmem_advise advice, CUmemLocation location)
{
    return memory_advise(driver, address, bytes, advice, device_of_location(location));
}

cudaError_t sg_cudaMemPrefetchAsync(const struct sg_rt_driver *driver, const void *address, size_t bytes, int device,
                                    CUstream stream)
{
    return memory_prefetch(driver, address, bytes, device, stream);
}

cudaError_t sg_cudaMemPrefetchAsync_v2(const struct sg_rt_driver *driver, const void *address, size_t bytes,
                                       CUmemLocation location, unsigned flags, CUstream stream)
{
    return flags ? cudaErrorInvalidValue : memory_prefetch(driver, address, bytes, device_of_location(location), stream);
}
#else
cudaError_t sg_cudaMemAdvise(const struct sg_rt_driver *driver, const void *address, size_t bytes, CUmem_advise advice,
                             CUmemLocation location)
{
    return memory_advise(driver, address, bytes, advice, device_of_location(location));
}

cudaError_t sg_cudaMemPrefetchAsync(const struct sg_rt_driver *driver, const void *address, size_t bytes,
                                    CUmemLocation location, unsigned flags, CUstream stream)
{
    return flags ? cudaErrorInvalidValue : memory_prefetch(driver, address, bytes, device_of_location(location), stream);
}
#endif

cudaError_t sg_cudaMallocAsync(const struct sg_rt_driver *driver, void **ret, size_t bytes, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    CUdeviceptr address = 0;
    CUresult result = driver->cuMemAllocAsync(&address, bytes, stream);
    return hand_out(result, address, ret);
}

cudaError_t sg_cudaMallocFromPoolAsync(const struct sg_rt_driver *driver, void **ret, size_t bytes, CUmemoryPool pool,
                                       CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    CUdeviceptr address = 0;
    CUresult result = driver->cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
    return hand_out(result, address, ret);
}

cudaError_t sg_cudaFreeAsync(const struct sg_rt_driver *driver, void *address, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || !address)
        return error;
    return sg_rt_translate(driver->cuMemFreeAsync(sg_rt_address(address), stream));
}

cudaError_t sg_cudaDeviceGetDefaultMemPool(const struct sg_rt_driver *driver, CUmemoryPool *ret, int device)
{
    cudaError_t error = sg_rt_check_device(device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceGetDefaultMemPool(ret, device));
}

cudaError_t sg_cudaDeviceGetMemPool(const struct sg_rt_driver *driver, CUmemoryPool *ret, int device)
{
    cudaError_t error = sg_rt_check_device(device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceGetMemPool(ret, device));
}

cudaError_t sg_cudaDeviceSetMemPool(const struct sg_rt_driver *driver, int device, CUmemoryPool pool)
{
    cudaError_t error = sg_rt_check_device(device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceSetMemPool(device, pool));
}

cudaError_t sg_cudaIpcOpenMemHandle(const struct sg_rt_driver *driver, void **ret, CUipcMemHandle handle,
                                    unsigned flags)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!ret)
        return cudaErrorInvalidValue;
    CUdeviceptr address = 0;
    CUresult result = driver->cuIpcOpenMemHandle(&address, handle, flags);
    return hand_out(result, address, ret);
}
