/* Copies to and from registered variables. */
#include <stdbool.h>

#include "entry.h"
#include "registry.h"

static cudaError_t symbol_part(const void *symbol, size_t bytes, size_t offset, char **ret)
{
    CUdeviceptr address = 0;
    size_t size = 0;
    cudaError_t error = sg_rt_symbol(symbol, &address, &size);
    if (error != cudaSuccess)
        return error;
    if (offset > size || bytes > size - offset)
        return cudaErrorInvalidValue;
    *ret = (char *)(uintptr_t)address + offset;
    return cudaSuccess;
}

/* To the device it may come from the host or from a device, and the reverse; cudaMemcpyDefault finds out. */
static bool writes_device(int kind)
{
    return kind == COPY_HOST_TO_DEVICE || kind == COPY_DEVICE_TO_DEVICE || kind == COPY_DEFAULT;
}

static bool reads_device(int kind)
{
    return kind == COPY_DEVICE_TO_HOST || kind == COPY_DEVICE_TO_DEVICE || kind == COPY_DEFAULT;
}

cudaError_t sg_cudaMemcpyToSymbol(const struct sg_rt_driver *driver, const void *symbol, const void *from, size_t bytes,
                                  size_t offset, int kind)
{
    char *to = NULL;
    cudaError_t error = symbol_part(symbol, bytes, offset, &to);
    if (error != cudaSuccess)
        return error;
    return writes_device(kind) ? sg_cudaMemcpy(driver, to, from, bytes, kind) : cudaErrorInvalidMemcpyDirection;
}

cudaError_t sg_cudaMemcpyToSymbolAsync(const struct sg_rt_driver *driver, const void *symbol, const void *from,
                                       size_t bytes, size_t offset, int kind, CUstream stream)
{
    char *to = NULL;
    cudaError_t error = symbol_part(symbol, bytes, offset, &to);
    if (error != cudaSuccess)
        return error;
    return writes_device(kind) ? sg_cudaMemcpyAsync(driver, to, from, bytes, kind, stream)
                               : cudaErrorInvalidMemcpyDirection;
}

cudaError_t sg_cudaMemcpyFromSymbol(const struct sg_rt_driver *driver, void *to, const void *symbol, size_t bytes,
                                    size_t offset, int kind)
{
    char *from = NULL;
    cudaError_t error = symbol_part(symbol, bytes, offset, &from);
    if (error != cudaSuccess)
        return error;
    return reads_device(kind) ? sg_cudaMemcpy(driver, to, from, bytes, kind) : cudaErrorInvalidMemcpyDirection;
}

cudaError_t sg_cudaMemcpyFromSymbolAsync(const struct sg_rt_driver *driver, void *to, const void *symbol, size_t bytes,
                                         size_t offset, int kind, CUstream stream)
{
    char *from = NULL;
    cudaError_t error = symbol_part(symbol, bytes, offset, &from);
    if (error != cudaSuccess)
        return error;
    return reads_device(kind) ? sg_cudaMemcpyAsync(driver, to, from, bytes, kind, stream)
                              : cudaErrorInvalidMemcpyDirection;
}

cudaError_t sg_cudaGetSymbolAddress(const struct sg_rt_driver *driver, void **ret, const void *symbol)
{
    (void)driver;
    char *address = NULL;
    if (!ret)
        return cudaErrorInvalidValue;
    cudaError_t error = symbol_part(symbol, 0, 0, &address);
    if (error == cudaSuccess)
        *ret = address;
    return error;
}

cudaError_t sg_cudaGetSymbolSize(const struct sg_rt_driver *driver, size_t *ret, const void *symbol)
{
    (void)driver;
    CUdeviceptr address;
    return ret ? sg_rt_symbol(symbol, &address, ret) : cudaErrorInvalidValue;
}
