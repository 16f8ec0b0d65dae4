/* Copies and fills of lines of bytes. */
#include <stdbool.h>

#include "context.h"
#include "entry.h"
#include "error.h"

cudaError_t sg_cudaMemcpy(const struct sg_rt_driver *driver, void *to, const void *from, size_t bytes, int kind)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT)
        return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0)
        return cudaSuccess;
    switch ((enum sg_rt_copy_kind)kind) {
    case COPY_HOST_TO_DEVICE:
        return sg_rt_translate(driver->cuMemcpyHtoD(sg_rt_address(to), from, bytes));
    case COPY_DEVICE_TO_HOST:
        return sg_rt_translate(driver->cuMemcpyDtoH(to, sg_rt_address(from), bytes));
    case COPY_DEVICE_TO_DEVICE:
        return sg_rt_translate(driver->cuMemcpyDtoD(sg_rt_address(to), sg_rt_address(from), bytes));
    default:
        return sg_rt_translate(driver->cuMemcpy(sg_rt_address(to), sg_rt_address(from), bytes));
    }
}

cudaError_t sg_cudaMemcpyAsync(const struct sg_rt_driver *driver, void *to, const void *from, size_t bytes, int kind,
                               CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (kind < COPY_HOST_TO_HOST || kind > COPY_DEFAULT)
        return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0)
        return cudaSuccess;
    switch ((enum sg_rt_copy_kind)kind) {
    case COPY_HOST_TO_DEVICE:
        return sg_rt_translate(driver->cuMemcpyHtoDAsync(sg_rt_address(to), from, bytes, stream));
    case COPY_DEVICE_TO_HOST:
        return sg_rt_translate(driver->cuMemcpyDtoHAsync(to, sg_rt_address(from), bytes, stream));
    case COPY_DEVICE_TO_DEVICE:
        return sg_rt_translate(driver->cuMemcpyDtoDAsync(sg_rt_address(to), sg_rt_address(from), bytes, stream));
    default:
        return sg_rt_translate(driver->cuMemcpyAsync(sg_rt_address(to), sg_rt_address(from), bytes, stream));
    }
}

static cudaError_t copy_peer_contexts(int to_device, int from_device, CUcontext *to, CUcontext *from)
{
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_primary(to_device, to);
    return error != cudaSuccess ? error : sg_rt_primary(from_device, from);
}

cudaError_t sg_cudaMemcpyPeer(const struct sg_rt_driver *driver, void *to, int to_device, const void *from,
                              int from_device, size_t bytes)
{
    CUcontext to_context = NULL, from_context = NULL;
    cudaError_t error = copy_peer_contexts(to_device, from_device, &to_context, &from_context);
    if (error != cudaSuccess || bytes == 0)
        return error;
    return sg_rt_translate(
        driver->cuMemcpyPeer(sg_rt_address(to), to_context, sg_rt_address(from), from_context, bytes));
}

cudaError_t sg_cudaMemcpyPeerAsync(const struct sg_rt_driver *driver, void *to, int to_device, const void *from,
                                   int from_device, size_t bytes, CUstream stream)
{
    CUcontext to_context = NULL, from_context = NULL;
    cudaError_t error = copy_peer_contexts(to_device, from_device, &to_context, &from_context);
    if (error != cudaSuccess || bytes == 0)
        return error;
    return sg_rt_translate(
        driver->cuMemcpyPeerAsync(sg_rt_address(to), to_context, sg_rt_address(from), from_context, bytes, stream));
}

cudaError_t sg_cudaMemset(const struct sg_rt_driver *driver, void *to, int value, size_t bytes)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || bytes == 0)
        return error;
    return sg_rt_translate(driver->cuMemsetD8(sg_rt_address(to), (unsigned char)value, bytes));
}

cudaError_t sg_cudaMemsetAsync(const struct sg_rt_driver *driver, void *to, int value, size_t bytes, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || bytes == 0)
        return error;
    return sg_rt_translate(driver->cuMemsetD8Async(sg_rt_address(to), (unsigned char)value, bytes, stream));
}

cudaError_t sg_cudaMemset2D(const struct sg_rt_driver *driver, void *to, size_t pitch, int value, size_t width,
                            size_t height)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || width == 0 || height == 0)
        return error;
    return sg_rt_translate(driver->cuMemsetD2D8(sg_rt_address(to), pitch, (unsigned char)value, width, height));
}

cudaError_t sg_cudaMemset2DAsync(const struct sg_rt_driver *driver, void *to, size_t pitch, int value, size_t width,
                                 size_t height, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess || width == 0 || height == 0)
        return error;
    return sg_rt_translate(
        driver->cuMemsetD2D8Async(sg_rt_address(to), pitch, (unsigned char)value, width, height, stream));
}

/* A box is a rectangle for each slice, or one in all when the slices follow each other row by row. */
static void copy_slices(struct cudaPitchedPtr to, struct cudaExtent extent, size_t *ret_rows, size_t *ret_count)
{
    bool whole = extent.height == to.ysize;
    *ret_rows = whole ? extent.height * extent.depth : extent.height;
    *ret_count = whole ? 1 : extent.depth;
}

cudaError_t sg_cudaMemset3D(const struct sg_rt_driver *driver, struct cudaPitchedPtr to, int value,
                            struct cudaExtent extent)
{
    if (extent.depth == 0)
        return sg_rt_context();
    size_t rows, count;
    copy_slices(to, extent, &rows, &count);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < count && error == cudaSuccess; i++)
        error = sg_cudaMemset2D(driver, (char *)to.ptr + i * to.pitch * to.ysize, to.pitch, value, extent.width, rows);
    return error;
}

cudaError_t sg_cudaMemset3DAsync(const struct sg_rt_driver *driver, struct cudaPitchedPtr to, int value,
                                 struct cudaExtent extent, CUstream stream)
{
    if (extent.depth == 0)
        return sg_rt_context();
    size_t rows, count;
    copy_slices(to, extent, &rows, &count);
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < count && error == cudaSuccess; i++)
        error = sg_cudaMemset2DAsync(driver, (char *)to.ptr + i * to.pitch * to.ysize, to.pitch, value, extent.width,
                                     rows, stream);
    return error;
}
