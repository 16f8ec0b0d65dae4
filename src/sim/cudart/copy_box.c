/* Copies of rectangles and boxes, of memory and of arrays, as the driver's descriptors. */
#include "copy_box.h"

#include "array.h"
#include "context.h"
#include "entry.h"
#include "error.h"

/* With unified addressing the driver finds out for itself where an address is, if asked to. */
static bool source_is_host(int kind)
{
    return kind == COPY_HOST_TO_HOST || kind == COPY_HOST_TO_DEVICE;
}

static bool target_is_host(int kind)
{
    return kind == COPY_HOST_TO_HOST || kind == COPY_DEVICE_TO_HOST;
}

static bool is_known_kind(int kind)
{
    return kind >= COPY_HOST_TO_HOST && kind <= COPY_DEFAULT;
}

static void source_2d(CUDA_MEMCPY2D *copy, const void *from, size_t pitch, int kind)
{
    copy->srcPitch = pitch;
    if (source_is_host(kind)) {
        copy->srcMemoryType = CU_MEMORYTYPE_HOST;
        copy->srcHost = from;
    } else {
        copy->srcMemoryType = kind == COPY_DEFAULT ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
        copy->srcDevice = sg_rt_address(from);
    }
}

static void target_2d(CUDA_MEMCPY2D *copy, void *to, size_t pitch, int kind)
{
    copy->dstPitch = pitch;
    if (target_is_host(kind)) {
        copy->dstMemoryType = CU_MEMORYTYPE_HOST;
        copy->dstHost = to;
    } else {
        copy->dstMemoryType = kind == COPY_DEFAULT ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
        copy->dstDevice = sg_rt_address(to);
    }
}

enum timing { NOW, IN_STREAM };

static cudaError_t copy_box_2d(const struct sg_rt_driver *driver, const CUDA_MEMCPY2D *copy, enum timing timing,
    CUstream stream)
{
    if (copy->WidthInBytes == 0 || copy->Height == 0)
        return cudaSuccess;
    return sg_rt_translate(timing == NOW ? driver->cuMemcpy2DUnaligned(copy) : driver->cuMemcpy2DAsync(copy, stream));
}

static cudaError_t copy_rectangle(const struct sg_rt_driver *driver, void *to, size_t to_pitch, const void *from,
    size_t from_pitch, size_t width, size_t height, int kind, enum timing timing, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!is_known_kind(kind))
        return cudaErrorInvalidMemcpyDirection;
    if (width > to_pitch || width > from_pitch)
        return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY2D copy = {.WidthInBytes = width, .Height = height};
    source_2d(&copy, from, from_pitch, kind);
    target_2d(&copy, to, to_pitch, kind);
    return copy_box_2d(driver, &copy, timing, stream);
}

cudaError_t sg_cudaMemcpy2D(const struct sg_rt_driver *driver, void *to, size_t to_pitch, const void *from,
                            size_t from_pitch, size_t width, size_t height, int kind)
{
    return copy_rectangle(driver, to, to_pitch, from, from_pitch, width, height, kind, NOW, NULL);
}

cudaError_t sg_cudaMemcpy2DAsync(const struct sg_rt_driver *driver, void *to, size_t to_pitch, const void *from,
                                 size_t from_pitch, size_t width, size_t height, int kind, CUstream stream)
{
    return copy_rectangle(driver, to, to_pitch, from, from_pitch, width, height, kind, IN_STREAM, stream);
}

static cudaError_t to_array(const struct sg_rt_driver *driver, CUarray to, size_t x, size_t y, const void *from,
                            size_t pitch, size_t width, size_t height, int kind, enum timing timing, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!is_known_kind(kind) || target_is_host(kind))
        return cudaErrorInvalidMemcpyDirection;
    if (width > pitch)
        return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY2D copy = {.WidthInBytes = width, .Height = height, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = to, .dstXInBytes = x, .dstY = y};
    source_2d(&copy, from, pitch, kind);
    return copy_box_2d(driver, &copy, timing, stream);
}

cudaError_t sg_cudaMemcpy2DToArray(const struct sg_rt_driver *driver, CUarray to, size_t x, size_t y, const void *from,
                                   size_t pitch, size_t width, size_t height, int kind)
{
    return to_array(driver, to, x, y, from, pitch, width, height, kind, NOW, NULL);
}

cudaError_t sg_cudaMemcpy2DToArrayAsync(const struct sg_rt_driver *driver, CUarray to, size_t x, size_t y,
                                        const void *from, size_t pitch, size_t width, size_t height, int kind,
                                        CUstream stream)
{
    return to_array(driver, to, x, y, from, pitch, width, height, kind, IN_STREAM, stream);
}

static cudaError_t from_array(const struct sg_rt_driver *driver, void *to, size_t pitch, CUarray from, size_t x,
                              size_t y, size_t width, size_t height, int kind, enum timing timing, CUstream stream)
{
    cudaError_t error = sg_rt_context();
    if (error != cudaSuccess)
        return error;
    if (!is_known_kind(kind) || source_is_host(kind))
        return cudaErrorInvalidMemcpyDirection;
    if (width > pitch)
        return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY2D copy = {.WidthInBytes = width, .Height = height, .srcMemoryType = CU_MEMORYTYPE_ARRAY,
                          .srcArray = from, .srcXInBytes = x, .srcY = y};
    target_2d(&copy, to, pitch, kind);
    return copy_box_2d(driver, &copy, timing, stream);
}

cudaError_t sg_cudaMemcpy2DFromArray(const struct sg_rt_driver *driver, void *to, size_t pitch, CUarray from, size_t x,
                                     size_t y, size_t width, size_t height, int kind)
{
    return from_array(driver, to, pitch, from, x, y, width, height, kind, NOW, NULL);
}

cudaError_t sg_cudaMemcpy2DFromArrayAsync(const struct sg_rt_driver *driver, void *to, size_t pitch, CUarray from,
                                          size_t x, size_t y, size_t width, size_t height, int kind, CUstream stream)
{
    return from_array(driver, to, pitch, from, x, y, width, height, kind, IN_STREAM, stream);
}

/* Positions in memory are bytes, those in an array its elements; so is the extent when an array takes part. */
cudaError_t sg_rt_describe_box(const struct sg_rt_driver *driver, const struct cudaMemcpy3DParms *p,
                               CUDA_MEMCPY3D *ret)
{
    if (!p || !is_known_kind(p->kind))
        return p ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
    if (!p->srcArray == !p->srcPtr.ptr || !p->dstArray == !p->dstPtr.ptr)
        return cudaErrorInvalidValue;
    size_t from_element = 1, to_element = 1;
    cudaError_t error = cudaSuccess;
    if (p->srcArray)
        error = sg_rt_array_element(driver, p->srcArray, &from_element);
    if (error == cudaSuccess && p->dstArray)
        error = sg_rt_array_element(driver, p->dstArray, &to_element);
    if (error != cudaSuccess)
        return error;
    CUDA_MEMCPY3D copy = {
        .srcXInBytes = p->srcPos.x * from_element, .srcY = p->srcPos.y, .srcZ = p->srcPos.z,
        .srcPitch = p->srcPtr.pitch, .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x * to_element, .dstY = p->dstPos.y, .dstZ = p->dstPos.z,
        .dstPitch = p->dstPtr.pitch, .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width * (p->srcArray ? from_element : to_element),
        .Height = p->extent.height, .Depth = p->extent.depth,
    };
    CUmemorytype memory = p->kind == COPY_DEFAULT ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
    copy.srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : source_is_host(p->kind) ? CU_MEMORYTYPE_HOST : memory;
    copy.dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : target_is_host(p->kind) ? CU_MEMORYTYPE_HOST : memory;
    copy.srcArray = p->srcArray;
    copy.dstArray = p->dstArray;
    if (copy.srcMemoryType == CU_MEMORYTYPE_HOST)
        copy.srcHost = p->srcPtr.ptr;
    else
        copy.srcDevice = sg_rt_address(p->srcPtr.ptr);
    if (copy.dstMemoryType == CU_MEMORYTYPE_HOST)
        copy.dstHost = p->dstPtr.ptr;
    else
        copy.dstDevice = sg_rt_address(p->dstPtr.ptr);
    if ((!p->srcArray && copy.WidthInBytes > copy.srcPitch) || (!p->dstArray && copy.WidthInBytes > copy.dstPitch))
        return cudaErrorInvalidPitchValue;
    *ret = copy;
    return cudaSuccess;
}

static cudaError_t copy_one_box(const struct sg_rt_driver *driver, const struct cudaMemcpy3DParms *p,
    enum timing timing, CUstream stream)
{
    CUDA_MEMCPY3D copy;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_describe_box(driver, p, &copy);
    if (error != cudaSuccess || copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0)
        return error;
    return sg_rt_translate(timing == NOW ? driver->cuMemcpy3D(&copy) : driver->cuMemcpy3DAsync(&copy, stream));
}

cudaError_t sg_cudaMemcpy3D(const struct sg_rt_driver *driver, const struct cudaMemcpy3DParms *copy)
{
    return copy_one_box(driver, copy, NOW, NULL);
}

cudaError_t sg_cudaMemcpy3DAsync(const struct sg_rt_driver *driver, const struct cudaMemcpy3DParms *copy,
                                 CUstream stream)
{
    return copy_one_box(driver, copy, IN_STREAM, stream);
}

static cudaError_t peer_box(const struct sg_rt_driver *driver, const struct cudaMemcpy3DPeerParms *p,
                            enum timing timing, CUstream stream)
{
    if (!p)
        return cudaErrorInvalidValue;
    struct cudaMemcpy3DParms plain = {
        .srcArray = p->srcArray, .srcPos = p->srcPos, .srcPtr = p->srcPtr, .dstArray = p->dstArray,
        .dstPos = p->dstPos, .dstPtr = p->dstPtr, .extent = p->extent, .kind = COPY_DEVICE_TO_DEVICE,
    };
    CUDA_MEMCPY3D copy;
    CUcontext from = NULL, to = NULL;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_primary(p->srcDevice, &from);
    if (error == cudaSuccess)
        error = sg_rt_primary(p->dstDevice, &to);
    if (error == cudaSuccess)
        error = sg_rt_describe_box(driver, &plain, &copy);
    if (error != cudaSuccess || copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0)
        return error;
    CUDA_MEMCPY3D_PEER peer = {
        .srcXInBytes = copy.srcXInBytes, .srcY = copy.srcY, .srcZ = copy.srcZ, .srcMemoryType = copy.srcMemoryType,
        .srcDevice = copy.srcDevice, .srcArray = copy.srcArray, .srcContext = from, .srcPitch = copy.srcPitch,
        .srcHeight = copy.srcHeight, .dstXInBytes = copy.dstXInBytes, .dstY = copy.dstY, .dstZ = copy.dstZ,
        .dstMemoryType = copy.dstMemoryType, .dstDevice = copy.dstDevice, .dstArray = copy.dstArray,
        .dstContext = to, .dstPitch = copy.dstPitch, .dstHeight = copy.dstHeight,
        .WidthInBytes = copy.WidthInBytes, .Height = copy.Height, .Depth = copy.Depth,
    };
    return sg_rt_translate(timing == NOW ? driver->cuMemcpy3DPeer(&peer) : driver->cuMemcpy3DPeerAsync(&peer, stream));
}

cudaError_t sg_cudaMemcpy3DPeer(const struct sg_rt_driver *driver, const struct cudaMemcpy3DPeerParms *copy)
{
    return peer_box(driver, copy, NOW, NULL);
}

cudaError_t sg_cudaMemcpy3DPeerAsync(const struct sg_rt_driver *driver, const struct cudaMemcpy3DPeerParms *copy,
                                     CUstream stream)
{
    return peer_box(driver, copy, IN_STREAM, stream);
}
