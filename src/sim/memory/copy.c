#include "graphs/graph.h"
#include "hazard/hazard.h"

#include <stdlib.h>
#include <string.h>

/* Up to this size a copy from pageable memory is staged, so that the call need not wait for the stream. */
enum { STAGED_MAX = 1 << 20 };

struct copy {
    struct sim_box box;
    bool device_dst, device_src, bad;
    unsigned char *staged;
};

static uint64_t extent(const struct sim_box *box, const struct sim_side *side)
{
    return sim_extent(box->depth, side->slice, sim_extent(box->height, side->pitch, box->width));
}

/* Locked. A copy from one device to another is made by the device of its stream, which must have access to both sides;
   one by name (cuMemcpyPeer) and one within a device need not look. */
static const struct sim_device *made_by(const struct sim_box *box, CUcontext context)
{
    const struct sim_device *dst = sim_device_at(box->dst.address), *src = sim_device_at(box->src.address);
    return box->peer || !dst || !src || dst == src ? NULL : context->device;
}

static void run(struct sim_work *work)
{
    struct copy *copy = (struct copy *)work->payload;
    const struct sim_box *box = &copy->box;
    sim_lock();
    const struct sim_device *by = made_by(box, work->context);
    copy->bad = (copy->device_dst &&
                    sim_span(box->dst.address, extent(box, &box->dst), true, by) != SIM_SPAN_DEVICE) ||
                (copy->device_src &&
                    sim_span(box->src.address, extent(box, &box->src), false, by) != SIM_SPAN_DEVICE);
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
static void finish(struct sim_work *work)
{
    struct copy *copy = (struct copy *)work->payload;
    if (copy->bad && !work->dropped && work->context->error == CUDA_SUCCESS) {
        work->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
        sim_hazard_lost(work);
    }
    free(copy->staged);
}

static void touch(struct sim_work *work, const struct copy *copy)
{
    const struct sim_box *box = &copy->box;
    if (copy->device_src)
        sim_work_touch(work, box->src.address, extent(box, &box->src), false);
    if (copy->device_dst)
        sim_work_touch(work, box->dst.address, extent(box, &box->dst), true);
}

CUresult sim_copy_work(const CUDA_MEMCPY3D *params, struct sim_work **ret)
{
    struct sim_box box;
    CUresult result = sim_copy_box(params, &box);
    if (result != CUDA_SUCCESS)
        return result;
    if (!box.width || !box.height || !box.depth)
        return CUDA_ERROR_INVALID_VALUE;
    enum sim_span dst = sim_span(box.dst.address, extent(&box, &box.dst), true, NULL);
    enum sim_span src = sim_span(box.src.address, extent(&box, &box.src), false, NULL);
    if (dst == SIM_SPAN_BAD || src == SIM_SPAN_BAD)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work *work = sim_work_new(sizeof(struct copy), run, finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct copy *copy = (struct copy *)work->payload;
    *copy = (struct copy){.box = box, .device_dst = dst == SIM_SPAN_DEVICE, .device_src = src == SIM_SPAN_DEVICE};
    touch(work, copy);
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

static bool fits(enum sim_span span, const struct sim_side *side)
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
        const struct sim_device *by = made_by(box, stream->context);
        dst = sim_span(box->dst.address, extent(box, &box->dst), true, by);
        src = sim_span(box->src.address, extent(box, &box->src), false, by);
        if (!fits(dst, &box->dst) || !fits(src, &box->src))
            result = CUDA_ERROR_INVALID_VALUE;
    }
    sim_unlock();
    if (result != CUDA_SUCCESS || empty)
        return result;
    struct sim_work *work = sim_work_new(sizeof(struct copy), run, finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct copy *copy = (struct copy *)work->payload;
    copy->box = *box;
    copy->device_dst = dst == SIM_SPAN_DEVICE;
    copy->device_src = src == SIM_SPAN_DEVICE;
    touch(work, copy);
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_MEMCPY;
    /* A captured copy reads and writes the host's memory when the graph runs. */
    bool wait = dst == SIM_SPAN_PAGEABLE || (blocking && (box->peer || !(copy->device_dst && copy->device_src)));
    wait = wait && !captured;
    if (!wait && src == SIM_SPAN_PAGEABLE && !captured) {
        uint64_t bytes = extent(box, &box->src);
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
