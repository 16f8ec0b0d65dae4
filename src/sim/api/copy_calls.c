/* The entry points of copying: each says which box it means, in which stream, and whether it waits. */
#include "calls.h"
#include "device/context.h"
#include "device/device.h"
#include "streams/queue.h"
#include "work/copy.h"
#include "work/program_stream.h"

#define PITCH_MOST UINT64_C(2147483647) /* MAX_PITCH of attribute.def */

static struct sim_side side_of(uint64_t address, int expected)
{
    struct sim_side s = {.address = address};
    s.expected = expected;
    return s;
}

static uint64_t host_address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static CUresult copy_linear(struct sim_side dst, struct sim_side src, size_t bytes, CUstream stream, bool blocking)
{
    struct sim_box box = {.dst = dst, .src = src, .width = bytes, .height = 1, .depth = 1};
    return sim_copy(&box, stream, blocking);
}

/* A function that waits, in its legacy and its …_ptds form, and the one that does not, also …_ptsz. */
#define LINEAR(blocking, async, parameters, async_parameters, dst, src)     \
    CUresult blocking parameters                                            \
    {                                                                       \
        SIM_ENTER(blocking);                                                \
        return copy_linear(dst, src, bytes, CU_STREAM_LEGACY, true);        \
    }                                                                       \
    CUresult blocking##_ptds parameters                                     \
    {                                                                       \
        SIM_ENTER(blocking);                                                \
        return copy_linear(dst, src, bytes, CU_STREAM_PER_THREAD, true);    \
    }                                                                       \
    CUresult async async_parameters                                         \
    {                                                                       \
        SIM_ENTER(async);                                                   \
        return copy_linear(dst, src, bytes, stream, false);                 \
    }                                                                       \
    CUresult async##_ptsz async_parameters                                  \
    {                                                                       \
        SIM_ENTER(async);                                                   \
        return copy_linear(dst, src, bytes, sim_per_thread(stream), false); \
    }

LINEAR(cuMemcpy, cuMemcpyAsync, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
    (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), side_of(dst, SIM_SIDE_ANY),
    side_of(src, SIM_SIDE_ANY))

/* Attributes are hints about managed memory, and about how soon a source may be read. */
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes *attributes,
    CUstream stream)
{
    SIM_ENTER(cuMemcpyWithAttributesAsync);
    (void)attributes;
    return copy_linear(side_of(dst, SIM_SIDE_ANY), side_of(src, SIM_SIDE_ANY), bytes, stream, false);
}

/* True if the attributes of a batch are as the driver demands. The first is the first copy's, and each begins behind the one
   before. All say how a source is accessed. */
static bool are_attributes(const CUmemcpyAttributes *attributes, const size_t *indices, size_t attribute_count,
    size_t count)
{
    bool fine = attributes && indices && attribute_count && attribute_count <= count && indices[0] == 0;
    for (size_t i = 0; fine && i < attribute_count; i++)
        fine = (i == 0 || indices[i] > indices[i - 1]) && indices[i] < count &&
               attributes[i].srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
               attributes[i].srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    return fine;
}

/* One after the other, which the interface allows: it promises no order within a batch. A batch takes no default stream of the
   legacy kind. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
    CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, size_t *failed, CUstream stream)
{
    SIM_ENTER(cuMemcpyBatchAsync);
    if (failed)
        *failed = SIZE_MAX; /* no copy of them is to blame */
    if (!dst || !src || !bytes || !are_attributes(attributes, indices, attribute_count, count) || !stream ||
        stream == CU_STREAM_LEGACY)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result =
            copy_linear(side_of(dst[i], SIM_SIDE_ANY), side_of(src[i], SIM_SIDE_ANY), bytes[i], stream, false);
        if (result != CUDA_SUCCESS) {
            if (failed)
                *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
    CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, CUstream stream)
{
    return cuMemcpyBatchAsync(dst, src, bytes, count, attributes, indices, attribute_count, NULL, stream);
}

CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
    CUmemcpyAttributes *attributes, CUstream stream)
{
    return cuMemcpyWithAttributesAsync(dst, src, bytes, attributes, sim_per_thread(stream));
}

CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
    CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, size_t *failed, CUstream stream)
{
    return cuMemcpyBatchAsync(dst, src, bytes, count, attributes, indices, attribute_count, failed,
        sim_per_thread(stream));
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
    CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, CUstream stream)
{
    return cuMemcpyBatchAsync_v2(dst, src, bytes, count, attributes, indices, attribute_count, sim_per_thread(stream));
}

LINEAR(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t bytes),
    (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream), side_of(dst, SIM_SIDE_DEVICE),
    side_of(host_address(src), SIM_SIDE_HOST))

LINEAR(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t bytes),
    (void *dst, CUdeviceptr src, size_t bytes, CUstream stream), side_of(host_address(dst), SIM_SIDE_HOST),
    side_of(src, SIM_SIDE_DEVICE))

LINEAR(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes),
    (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), side_of(dst, SIM_SIDE_DEVICE),
    side_of(src, SIM_SIDE_DEVICE))

/* The form without a stream is serialized with all work of both devices, past and to come (CUDA Driver API,
   cuMemcpyPeer): here by waiting for it. */
static CUresult copy_peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes,
    CUstream stream, bool serialized)
{
    sim_lock();
    CUcontext dst_found, src_found;
    CUresult result = sim_context_get(dst_context, &dst_found);
    if (result == CUDA_SUCCESS)
        result = sim_context_get(src_context, &src_found);
    if (result == CUDA_SUCCESS && serialized) {
        struct sim_device *dst_device = dst_found->device, *src_device = src_found->device;
        result = sim_wait_device(dst_device);
        if (result == CUDA_SUCCESS)
            result = sim_wait_device(src_device);
    }
    sim_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_box box = {.dst = side_of(dst, SIM_SIDE_DEVICE),
        .src = side_of(src, SIM_SIDE_DEVICE),
        .width = bytes,
        .height = 1,
        .depth = 1,
        .peer = true};
    return sim_copy(&box, stream, serialized);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes)
{
    SIM_ENTER(cuMemcpyPeer);
    return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
    size_t bytes)
{
    SIM_ENTER(cuMemcpyPeer);
    return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
    size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyPeerAsync);
    return copy_peer(dst, dst_context, src, src_context, bytes, stream, false);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context,
    size_t bytes, CUstream stream)
{
    SIM_ENTER(cuMemcpyPeerAsync);
    return copy_peer(dst, dst_context, src, src_context, bytes, sim_per_thread(stream), false);
}

static CUresult copy_call_2d_unaligned(const CUDA_MEMCPY2D *c, CUstream stream, bool blocking)
{
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_box box = {.width = c->WidthInBytes, .height = c->Height, .depth = 1};
    CUresult result = sim_copy_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, 0, c->srcPitch,
        0, &box, &box.src);
    if (result == CUDA_SUCCESS)
        result = sim_copy_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, 0, c->dstPitch, 0,
            &box, &box.dst);
    return result == CUDA_SUCCESS ? sim_copy(&box, stream, blocking) : result;
}

/* "returns an error if any pitch is greater than the maximum allowed", says cuda.h of cuMemcpy2D; of cuMemcpy2DUnaligned that it
   has not this restriction. */
static CUresult copy_call_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool blocking)
{
    if (c && ((c->srcMemoryType != CU_MEMORYTYPE_ARRAY && c->srcPitch > PITCH_MOST) ||
                 (c->dstMemoryType != CU_MEMORYTYPE_ARRAY && c->dstPitch > PITCH_MOST)))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_call_2d_unaligned(c, stream, blocking);
}

/* CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have the same members but for the contexts. */
#define COPY_3D(c, stream, blocking, is_peer)                                                                         \
    if (!(c) || (c)->srcLOD || (c)->dstLOD)                                                                           \
        return CUDA_ERROR_INVALID_VALUE;                                                                              \
    struct sim_box box = {.width = (c)->WidthInBytes, .height = (c)->Height, .depth = (c)->Depth, .peer = (is_peer)}; \
    CUresult result = sim_copy_side((c)->srcMemoryType, (c)->srcHost, (c)->srcDevice, (c)->srcXInBytes, (c)->srcY,    \
        (c)->srcZ, (c)->srcPitch, (c)->srcHeight, &box, &box.src);                                                    \
    if (result == CUDA_SUCCESS)                                                                                       \
        result = sim_copy_side((c)->dstMemoryType, (c)->dstHost, (c)->dstDevice, (c)->dstXInBytes, (c)->dstY,         \
            (c)->dstZ, (c)->dstPitch, (c)->dstHeight, &box, &box.dst);                                                \
    return result == CUDA_SUCCESS ? sim_copy(&box, stream, blocking) : result

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool blocking)
{
    COPY_3D(c, stream, blocking, false);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *c, CUstream stream, bool blocking)
{
    COPY_3D(c, stream, blocking, true);
}

#define BOX(symbol, type, body)                        \
    CUresult symbol(const type *copy)                  \
    {                                                  \
        SIM_ENTER_WITH(symbol, copy);                  \
        return body(copy, CU_STREAM_LEGACY, true);     \
    }                                                  \
    CUresult symbol##_ptds(const type *copy)           \
    {                                                  \
        SIM_ENTER_WITH(symbol, copy);                  \
        return body(copy, CU_STREAM_PER_THREAD, true); \
    }

#define BOX_ASYNC(symbol, type, body)                         \
    CUresult symbol(const type *copy, CUstream stream)        \
    {                                                         \
        SIM_ENTER_WITH(symbol, copy);                         \
        return body(copy, stream, false);                     \
    }                                                         \
    CUresult symbol##_ptsz(const type *copy, CUstream stream) \
    {                                                         \
        SIM_ENTER_WITH(symbol, copy);                         \
        return body(copy, sim_per_thread(stream), false);     \
    }

BOX(cuMemcpy2D_v2, CUDA_MEMCPY2D, copy_call_2d)
BOX(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, copy_call_2d_unaligned)
BOX(cuMemcpy3D_v2, CUDA_MEMCPY3D, copy_3d)
BOX(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, copy_3d_peer)

BOX_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_call_2d)
BOX_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d)
BOX_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, copy_3d_peer)
