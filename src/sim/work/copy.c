#include "work/copy.h"

#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "hazard/hazard.h"
#include "space/span.h"
#include "streams/capture.h"
#include "work/lost.h"
#include "work/program_stream.h"
#include "work/submit.h"

CUresult sim_copy_side(CUmemorytype type, const void *host_pointer, CUdeviceptr device_pointer, size_t x, size_t y,
    size_t z, size_t pitch, size_t height, const struct sim_box *box, struct sim_side *ret)
{
    uint64_t base;
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        base = (uint64_t)(uintptr_t)host_pointer;
        ret->expected = SIM_SIDE_HOST;
        break;
    case CU_MEMORYTYPE_DEVICE:
        base = device_pointer;
        ret->expected = SIM_SIDE_DEVICE;
        break;
    case CU_MEMORYTYPE_UNIFIED:
        base = device_pointer;
        ret->expected = SIM_SIDE_ANY;
        break;
    case CU_MEMORYTYPE_ARRAY:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t width, rows, slices_before, rows_before;
    if (__builtin_add_overflow(box->width, x, &width) || __builtin_add_overflow(box->height, y, &rows))
        return CUDA_ERROR_INVALID_VALUE;
    if (!pitch)
        pitch = width;
    if (!height)
        height = rows;
    if (width > pitch || (box->depth > 1 && rows > height))
        return CUDA_ERROR_INVALID_VALUE;
    ret->pitch = pitch;
    bool wraps = __builtin_mul_overflow(pitch, height, &ret->slice) ||
                 __builtin_mul_overflow(z, ret->slice, &slices_before) ||
                 __builtin_mul_overflow(y, pitch, &rows_before) ||
                 __builtin_add_overflow(base, slices_before, &ret->address) ||
                 __builtin_add_overflow(ret->address, rows_before, &ret->address) ||
                 __builtin_add_overflow(ret->address, x, &ret->address);
    return wraps ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult sim_copy_box(const CUDA_MEMCPY3D *c, struct sim_box *ret)
{
    struct sim_box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
    CUresult result = c->srcLOD || c->dstLOD ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = sim_copy_side(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ,
            c->srcPitch, c->srcHeight, &box, &box.src);
    if (result == CUDA_SUCCESS)
        result = sim_copy_side(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ,
            c->dstPitch, c->dstHeight, &box, &box.dst);
    if (result == CUDA_SUCCESS)
        *ret = box;
    return result;
}

/* Up to this size a copy from pageable memory is staged, so that the call need not wait for the stream. */
enum { STAGED_MAX = 1 << 20 };

struct copy {
    struct sim_box box;
    bool device_dst, device_src;
    uint64_t bad; /* an address without memory; 0: there is none */
    unsigned char *staged;
};

static uint64_t box_extent(const struct sim_box *box, const struct sim_side *side)
{
    return sim_extent(box->depth, side->slice, sim_extent(box->height, side->pitch, box->width));
}

/* Locked. A copy from one device to another is made by the device of its stream, which must have access to both sides;
   one by name (cuMemcpyPeer) and one within a device need not look. */
static const struct sim_device *box_made_by(const struct sim_box *box, CUcontext context)
{
    const struct sim_device *dst = sim_device_at(box->dst.address), *src = sim_device_at(box->src.address);
    return box->peer || !dst || !src || dst == src ? NULL : context->device;
}

/* Locked. The first address of a side that is no memory of a device now; 0: all of it is. */
static uint64_t copy_lacks(const struct sim_side *side, uint64_t bytes, bool write, const struct sim_device *by)
{
    if (sim_span(side->address, bytes, write, by) == SIM_SPAN_DEVICE)
        return 0;
    uint64_t lost = sim_span_lost(side->address, bytes, write);
    return lost ? lost : side->address;
}

static void copy_run(struct sim_work *work)
{
    struct copy *copy = (struct copy *)work->payload;
    const struct sim_box *box = &copy->box;
    sim_lock();
    const struct sim_device *by = box_made_by(box, work->context);
    if (copy->device_dst)
        copy->bad = copy_lacks(&box->dst, box_extent(box, &box->dst), true, by);
    if (copy->device_src && !copy->bad)
        copy->bad = copy_lacks(&box->src, box_extent(box, &box->src), false, by);
    sim_unlock();
    if (copy->bad || box->width * box->height * box->depth > sim.config.drop_bytes)
        return;
    unsigned char *dst = (unsigned char *)(uintptr_t)box->dst.address;
    const unsigned char *src = copy->staged ? copy->staged : (const unsigned char *)(uintptr_t)box->src.address;
    SIM_BYTES_BEGIN();
    for (uint64_t z = 0; z < box->depth; z++) {
        for (uint64_t y = 0; y < box->height; y++)
            memmove(dst + z * box->dst.slice + y * box->dst.pitch, src + z * box->src.slice + y * box->src.pitch,
                box->width);
    }
    SIM_BYTES_END();
}

/* A copy that finds its memory unmapped is what a GPU reports as an illegal address: the context is lost. */
static void copy_finish(struct sim_work *work)
{
    struct copy *copy = (struct copy *)work->payload;
    if (copy->bad)
        sim_work_lost(work, copy->bad);
    free(copy->staged);
}

/* A side of one slice is noted row by row. */
static void copy_touch_side(struct sim_work *work, const struct sim_box *box, const struct sim_side *side, bool write)
{
    if (box->depth == 1 && box->height)
        sim_work_touch_rows(work, side->address, box->width, side->pitch, box->height, write);
    else
        sim_work_touch(work, side->address, box_extent(box, side), write);
}

static void copy_touch(struct sim_work *work, const struct copy *copy)
{
    if (copy->device_src)
        copy_touch_side(work, &copy->box, &copy->box.src, false);
    if (copy->device_dst)
        copy_touch_side(work, &copy->box, &copy->box.dst, true);
}

CUresult sim_copy_work(const CUDA_MEMCPY3D *params, struct sim_work **ret)
{
    struct sim_box box;
    CUresult result = sim_copy_box(params, &box);
    if (result != CUDA_SUCCESS)
        return result;
    if (!box.width || !box.height || !box.depth)
        return CUDA_ERROR_INVALID_VALUE;
    enum sim_span dst = sim_span(box.dst.address, box_extent(&box, &box.dst), true, NULL);
    enum sim_span src = sim_span(box.src.address, box_extent(&box, &box.src), false, NULL);
    if (dst == SIM_SPAN_BAD || src == SIM_SPAN_BAD)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(sizeof(struct copy), copy_run, copy_finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct copy *copy = (struct copy *)work->payload;
    *copy = (struct copy){.box = box, .device_dst = dst == SIM_SPAN_DEVICE, .device_src = src == SIM_SPAN_DEVICE};
    copy_touch(work, copy);
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_MEMCPY;
    *ret = work;
    return CUDA_SUCCESS;
}

void sim_copy_params(const struct sim_work *work, CUDA_MEMCPY3D *ret)
{
    const struct sim_box *box = &((const struct copy *)work->payload)->box;
    *ret = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = box->src.address,
        .srcPitch = box->src.pitch, .srcHeight = box->src.pitch ? box->src.slice / box->src.pitch : 0,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = box->dst.address, .dstPitch = box->dst.pitch,
        .dstHeight = box->dst.pitch ? box->dst.slice / box->dst.pitch : 0, .WidthInBytes = box->width,
        .Height = box->height, .Depth = box->depth};
}

static bool side_fits(enum sim_span span, const struct sim_side *side)
{
    if (span == SIM_SPAN_BAD || !side->address)
        return false;
    return side->expected != SIM_SIDE_DEVICE || span != SIM_SPAN_PAGEABLE;
}

CUresult sim_copy(const struct sim_box *box, CUstream handle, bool blocking)
{
    bool empty = !box->width || !box->height || !box->depth;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    bool captured = result == CUDA_SUCCESS && sim_capturing(stream);
    if (result == CUDA_SUCCESS)
        result = sim_capture_legacy(stream);
    if (result == CUDA_SUCCESS && blocking)
        result = captured ? sim_capture_unsupported(stream) : sim_capture_forbids();
    enum sim_span dst = SIM_SPAN_BAD, src = SIM_SPAN_BAD;
    if (result == CUDA_SUCCESS && !empty) {
        const struct sim_device *by = box_made_by(box, stream->context);
        dst = sim_span(box->dst.address, box_extent(box, &box->dst), true, by);
        src = sim_span(box->src.address, box_extent(box, &box->src), false, by);
        if (!side_fits(dst, &box->dst) || !side_fits(src, &box->src))
            result = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    if (result != CUDA_SUCCESS || empty)
        return result;
    struct sim_work *work = sim_work_new(sizeof(struct copy), copy_run, copy_finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct copy *copy = (struct copy *)work->payload;
    copy->box = *box;
    copy->device_dst = dst == SIM_SPAN_DEVICE;
    copy->device_src = src == SIM_SPAN_DEVICE;
    copy_touch(work, copy);
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_MEMCPY;
    /* A captured copy reads and writes the host's memory when the graph runs. */
    bool wait = dst == SIM_SPAN_PAGEABLE || (blocking && (box->peer || !(copy->device_dst && copy->device_src)));
    wait = wait && !captured;
    if (!wait && src == SIM_SPAN_PAGEABLE && !captured) {
        uint64_t bytes = box_extent(box, &box->src);
        copy->staged = bytes <= STAGED_MAX ? malloc(bytes) : NULL;
        if (copy->staged)
            memcpy(copy->staged, (const void *)(uintptr_t)box->src.address, bytes);
        else
            wait = true;
    }
    sim_lock();
    result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS) {
        result = wait ? sim_submit_and_wait(stream, work) : sim_submit(stream, work, NULL);
    } else {
        free(copy->staged);
        sim_work_free(work);
    }
    sim_unlock();
    return result;
}
