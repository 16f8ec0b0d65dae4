/* Copies between two addresses of unified space: work for a stream like any other, but for three things.

   Mapped memory can be reached from another device only where access was given to it. A plain copy between devices
   works on cuMemAlloc's memory in any case, and fails on mapped memory without peer access. So it is made as the copy
   that names both contexts.

   Such a copy is also a use of the block by a stream of another device. A free on this device would not ask about that
   stream. Without peer access there is no other such use.

   Observations of the host by a copy follow launch_hooks.def, with one more rule. Copies between devices without a
   stream begin when all is done that both were given before. They end before what both are given after (CUDA C++
   Programming Guide, "Peer-to-Peer Memory Copy"). */
#include <stddef.h>

#include "check/faults.h"
#include "check/guard.h"
#include "serve/used_streams.h"
#include "track/contexts.h"
#include "hooks/copy_hooks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "track/free_policy.h"
#include "hooks/work_note.h"
#include "track/streams.h"

struct end {
    CUcontext context;
    int device; /* -1: not memory of a device */
    bool ours;
};

/* The device and context behind one end of a copy. The core knows its own blocks; the driver is asked about the rest.
   Memory of the host, and what the driver does not know, has device -1. */
static struct end copy_end_of(struct sg_core *core, CUdeviceptr address)
{
    struct sg_block_info block;
    unsigned type = 0;
    int device = -1;
    CUresult result = sg_core_block(core, sg_inner(address), &block);
    if (result == CUDA_SUCCESS)
        return (struct end){block.context, block.device, true};
    const struct sg_real *real = sg_real();
    if (result != CUDA_ERROR_NOT_FOUND ||
        real->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
        type != CU_MEMORYTYPE_DEVICE ||
        real->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS)
        return (struct end){.device = -1};
    return (struct end){sg_contexts_primary_of(device), device, false};
}

/* True if a copy crosses devices and touches memory of ours. */
static bool copy_crosses(CUdeviceptr dst, CUdeviceptr src, struct end *ret_dst, struct end *ret_src)
{
    if (!sg_contexts_devices() || (!sg_process_owns(dst) && !sg_process_owns(src)))
        return false;
    struct sg_core *core = sg_enter();
    if (!core)
        return false;
    *ret_dst = copy_end_of(core, dst);
    *ret_src = copy_end_of(core, src);
    sg_leave();
    return ret_dst->device >= 0 && ret_src->device >= 0 && ret_dst->device != ret_src->device && ret_dst->context &&
        ret_src->context && (ret_dst->ours || ret_src->ours);
}

/* Notes a use by a stream of another device. A caller that records the streams of its block records this one too. */
static void copy_note_use(struct sg_core *core, CUdeviceptr address, CUstream stream)
{
    struct sg_block_info block;
    int device;
    CUresult result = sg_core_block(core, sg_inner(address), &block);
    if (result == CUDA_ERROR_NOT_FOUND)
        sg_memory_served_cross_device();
    if (result != CUDA_SUCCESS || !sg_streams_device(stream, &device) || device == block.device)
        return;
    if (sg_memory_guesses() && !sg_memory_hooks_record_stream() && sg_following())
        (void)sg_memory_record_stream(core, block.base, stream);
    else
        sg_core_used_cross_device(core, block.base);
}

/* Only memory of ours has a record of uses. */
void sg_copies_used_on_devices(CUdeviceptr address, CUstream stream, bool per_thread)
{
    struct sg_core *core = sg_process_owns(address) ? sg_enter() : NULL;
    if (!core)
        return;
    copy_note_use(core, address, sg_stream_named(stream, per_thread));
    sg_leave();
}

/* The streams whose work the host, or another stream, may observe by a copy. */
enum observed { OBSERVED_NOTHING, OBSERVED_STREAM, OBSERVED_ALL };

/* A copy to 0 is one to the host. */
static enum observed observed_later(CUdeviceptr dst)
{
    return sg_following() && !sg_process_owns(dst) ? OBSERVED_STREAM : OBSERVED_NOTHING;
}

/* For a copy without a stream. The device of memory that the driver serves is not queried. */
static enum observed observed_now(CUdeviceptr dst, CUdeviceptr src, bool crossing)
{
    if (!sg_following())
        return OBSERVED_NOTHING;
    if (!crossing)
        crossing = sg_contexts_devices() && !sg_process_owns(dst) && !sg_process_owns(src);
    return crossing ? OBSERVED_ALL : OBSERVED_STREAM;
}

static void note_observed(enum observed observed, CUstream stream, bool per_thread)
{
    if (observed == OBSERVED_ALL)
        sg_streams_host_may_observe_all();
    else if (observed == OBSERVED_STREAM)
        sg_streams_host_may_observe(stream, per_thread);
}

/* Before the driver's call: a free that comes later is no mistake of this copy. */
static void copy_uses(CUdeviceptr dst, CUdeviceptr src, const char *symbol)
{
    sg_guard_uses(dst, symbol);
    sg_guard_uses(src, symbol);
}

/* After the driver's call, and before the program can know that there has been one. `crossing`: it may be between
   devices. */
static void copy_note(CUdeviceptr dst, CUdeviceptr src, CUstream stream, bool per_thread, bool crossing,
    enum observed observed)
{
    sg_work_note(stream, per_thread);
    sg_work_used(dst);
    sg_work_used(src);
    note_observed(observed, stream, per_thread);
    if (!crossing) { /* perhaps one end is the host's, and the other another device's than the stream's */
        sg_copies_used(dst, stream, per_thread);
        sg_copies_used(src, stream, per_thread);
    }
    struct sg_core *core = crossing && sg_contexts_devices() ? sg_enter() : NULL;
    if (!core)
        return;
    copy_note_use(core, dst, sg_stream_named(stream, per_thread));
    copy_note_use(core, src, sg_stream_named(stream, per_thread));
    sg_leave();
}

/* The plain copy `symbol`, or `peer` in its place; `stream` is what it gives work to. */
#define COPY(symbol, peer, parameters, arguments, peer_arguments, stream, per_thread, observation) \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct end to, from;                                                                       \
        bool crossing = copy_crosses(dst, src, &to, &from);                                        \
        const enum observed observed = observation;                                                \
        note_observed(observed, stream, per_thread);                                               \
        copy_uses(dst, src, #symbol);                                                              \
        CUresult result = crossing ? sg_real()->peer peer_arguments : sg_real()->symbol arguments; \
        sg_fault_seen(result, #symbol);                                                            \
        copy_note(dst, src, stream, per_thread, crossing, observed);                               \
        return result;                                                                             \
    }
#define COPY_NOW(symbol, peer, per_thread)                                                  \
    COPY(symbol, peer, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes), \
        (dst, to.context, src, from.context, bytes), NULL, per_thread, observed_now(dst, src, crossing))
#define COPY_ASYNC(symbol, peer, per_thread)                                                                         \
    COPY(symbol, peer, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream), \
        (dst, to.context, src, from.context, bytes, stream), stream, per_thread, observed_later(dst))

COPY_NOW(cuMemcpy, cuMemcpyPeer, false)
COPY_NOW(cuMemcpy_ptds, cuMemcpyPeer_ptds, true)
COPY_NOW(cuMemcpyDtoD_v2, cuMemcpyPeer, false)
COPY_NOW(cuMemcpyDtoD_v2_ptds, cuMemcpyPeer_ptds, true)
COPY_ASYNC(cuMemcpyAsync, cuMemcpyPeerAsync, false)
COPY_ASYNC(cuMemcpyAsync_ptsz, cuMemcpyPeerAsync_ptsz, true)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyPeerAsync, false)
COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyPeerAsync_ptsz, true)

/* A copy with attributes has no form that names both contexts. Its attributes are hints, which a copy between devices
   without peer access goes without. */
#define COPY_HINTED(symbol, peer, per_thread)                                                               \
    COPY(symbol, peer, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, void *attributes, CUstream stream), \
        (dst, src, bytes, attributes, stream), (dst, to.context, src, from.context, bytes, stream), stream, \
        per_thread, observed_later(dst))
COPY_HINTED(cuMemcpyWithAttributesAsync, cuMemcpyPeerAsync, false)
COPY_HINTED(cuMemcpyWithAttributesAsync_ptsz, cuMemcpyPeerAsync_ptsz, true)

#define PEER(symbol, per_thread)                                                                                  \
    CUresult symbol(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes) \
    {                                                                                                             \
        const enum observed observed = observed_now(dst, src, /* crossing */ true);                               \
        note_observed(observed, NULL, per_thread);                                                                \
        copy_uses(dst, src, #symbol);                                                                             \
        CUresult result = sg_real()->symbol(dst, dst_context, src, src_context, bytes);                           \
        sg_fault_seen(result, #symbol);                                                                           \
        copy_note(dst, src, NULL, per_thread, /* crossing */ true, observed);                                     \
        return result;                                                                                            \
    }
#define PEER_ASYNC(symbol, per_thread)                                                                            \
    CUresult symbol(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t bytes, \
        CUstream stream)                                                                                          \
    {                                                                                                             \
        const enum observed observed = observed_later(dst);                                                       \
        note_observed(observed, stream, per_thread);                                                              \
        copy_uses(dst, src, #symbol);                                                                             \
        CUresult result = sg_real()->symbol(dst, dst_context, src, src_context, bytes, stream);                   \
        sg_fault_seen(result, #symbol);                                                                           \
        copy_note(dst, src, stream, per_thread, /* crossing */ true, observed);                                   \
        return result;                                                                                            \
    }
PEER(cuMemcpyPeer, false)
PEER(cuMemcpyPeer_ptds, true)
PEER_ASYNC(cuMemcpyPeerAsync, false)
PEER_ASYNC(cuMemcpyPeerAsync_ptsz, true)

/* Copies in two and three dimensions; between arrays they are the driver's affair. */
static CUdeviceptr device_end(CUmemorytype type, CUdeviceptr address)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? address : 0;
}

/* The ends of a copy that are named by addresses: what stands in the other fields means nothing. */
#define DST(copy) ((copy) ? device_end((copy)->dstMemoryType, (copy)->dstDevice) : 0)
#define SRC(copy) ((copy) ? device_end((copy)->srcMemoryType, (copy)->srcDevice) : 0)

/* The copy in the form that names both contexts, where it crosses devices and touches memory of ours. False: the plain
   form does. Pitches and offsets stay as they are. */
static bool as_peer_copy(const CUDA_MEMCPY3D *copy, CUDA_MEMCPY3D_PEER *ret)
{
    struct end to, from;
    CUdeviceptr dst = DST(copy), src = SRC(copy);
    if (!dst || !src || !copy_crosses(dst, src, &to, &from))
        return false;
    *ret = (CUDA_MEMCPY3D_PEER){
        .srcXInBytes = copy->srcXInBytes, .srcY = copy->srcY, .srcZ = copy->srcZ, .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = src, .srcContext = from.context, .srcPitch = copy->srcPitch, .srcHeight = copy->srcHeight,
        .dstXInBytes = copy->dstXInBytes, .dstY = copy->dstY, .dstZ = copy->dstZ, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = dst, .dstContext = to.context, .dstPitch = copy->dstPitch, .dstHeight = copy->dstHeight,
        .WidthInBytes = copy->WidthInBytes, .Height = copy->Height, .Depth = copy->Depth,
    };
    return true;
}

/* A copy in two dimensions as one in three of depth 1, since only that has a form with two contexts. */
static bool flat_as_peer_copy(const CUDA_MEMCPY2D *copy, CUDA_MEMCPY3D_PEER *ret)
{
    const CUDA_MEMCPY3D deep = {
        .srcXInBytes = copy->srcXInBytes, .srcY = copy->srcY, .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost, .srcDevice = copy->srcDevice, .srcPitch = copy->srcPitch,
        .dstXInBytes = copy->dstXInBytes, .dstY = copy->dstY, .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost, .dstDevice = copy->dstDevice, .dstPitch = copy->dstPitch,
        .WidthInBytes = copy->WidthInBytes, .Height = copy->Height, .Depth = 1,
    };
    return as_peer_copy(&deep, ret);
}

#define DEEP_OBSERVED_LATER(copy) \
    ((copy) && (copy)->dstMemoryType == CU_MEMORYTYPE_ARRAY ? OBSERVED_NOTHING : observed_later(DST(copy)))

#define DEEP_NOW(symbol, type, convert, peer, per_thread)                               \
    CUresult symbol(const type *copy)                                                   \
    {                                                                                   \
        CUDA_MEMCPY3D_PEER other;                                                       \
        bool crossing = copy && sg_contexts_devices() && convert(copy, &other);         \
        const enum observed observed = observed_now(DST(copy), SRC(copy), crossing);    \
        note_observed(observed, NULL, per_thread);                                      \
        copy_uses(DST(copy), SRC(copy), #symbol);                                       \
        CUresult result = crossing ? sg_real()->peer(&other) : sg_real()->symbol(copy); \
        sg_fault_seen(result, #symbol);                                                 \
        copy_note(DST(copy), SRC(copy), NULL, per_thread, crossing, observed);          \
        return result;                                                                  \
    }
#define DEEP_ASYNC(symbol, type, convert, peer, per_thread)                                             \
    CUresult symbol(const type *copy, CUstream stream)                                                  \
    {                                                                                                   \
        CUDA_MEMCPY3D_PEER other;                                                                       \
        bool crossing = copy && sg_contexts_devices() && convert(copy, &other);                         \
        const enum observed observed = DEEP_OBSERVED_LATER(copy);                                       \
        note_observed(observed, stream, per_thread);                                                    \
        copy_uses(DST(copy), SRC(copy), #symbol);                                                       \
        CUresult result = crossing ? sg_real()->peer(&other, stream) : sg_real()->symbol(copy, stream); \
        sg_fault_seen(result, #symbol);                                                                 \
        copy_note(DST(copy), SRC(copy), stream, per_thread, crossing, observed);                        \
        return result;                                                                                  \
    }
DEEP_NOW(cuMemcpy2D_v2, CUDA_MEMCPY2D, flat_as_peer_copy, cuMemcpy3DPeer, false)
DEEP_NOW(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, flat_as_peer_copy, cuMemcpy3DPeer_ptds, true)
DEEP_NOW(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, flat_as_peer_copy, cuMemcpy3DPeer, false)
DEEP_NOW(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, flat_as_peer_copy, cuMemcpy3DPeer_ptds, true)
DEEP_NOW(cuMemcpy3D_v2, CUDA_MEMCPY3D, as_peer_copy, cuMemcpy3DPeer, false)
DEEP_NOW(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, as_peer_copy, cuMemcpy3DPeer_ptds, true)
DEEP_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, flat_as_peer_copy, cuMemcpy3DPeerAsync, false)
DEEP_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, flat_as_peer_copy, cuMemcpy3DPeerAsync_ptsz, true)
DEEP_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, as_peer_copy, cuMemcpy3DPeerAsync, false)
DEEP_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, as_peer_copy, cuMemcpy3DPeerAsync_ptsz, true)

#define DEEP_PEER(symbol, per_thread)                                                           \
    CUresult symbol(const CUDA_MEMCPY3D_PEER *copy)                                             \
    {                                                                                           \
        const enum observed observed = observed_now(DST(copy), SRC(copy), /* crossing */ true); \
        note_observed(observed, NULL, per_thread);                                              \
        copy_uses(DST(copy), SRC(copy), #symbol);                                               \
        CUresult result = sg_real()->symbol(copy);                                              \
        sg_fault_seen(result, #symbol);                                                         \
        copy_note(DST(copy), SRC(copy), NULL, per_thread, /* crossing */ true, observed);       \
        return result;                                                                          \
    }
#define DEEP_PEER_ASYNC(symbol, per_thread)                                                 \
    CUresult symbol(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)                        \
    {                                                                                       \
        const enum observed observed = DEEP_OBSERVED_LATER(copy);                           \
        note_observed(observed, stream, per_thread);                                        \
        copy_uses(DST(copy), SRC(copy), #symbol);                                           \
        CUresult result = sg_real()->symbol(copy, stream);                                  \
        sg_fault_seen(result, #symbol);                                                     \
        copy_note(DST(copy), SRC(copy), stream, per_thread, /* crossing */ true, observed); \
        return result;                                                                      \
    }
DEEP_PEER(cuMemcpy3DPeer, false)
DEEP_PEER(cuMemcpy3DPeer_ptds, true)
DEEP_PEER_ASYNC(cuMemcpy3DPeerAsync, false)
DEEP_PEER_ASYNC(cuMemcpy3DPeerAsync_ptsz, true)
