#include "api/context_life.h"

#include <stdlib.h>
#include <string.h>

#include "device/card.h"
#include "device/device.h"
#include "graphs/captured_work.h"
#include "kernels/module.h"
#include "memory/allocation.h"
#include "streams/capture.h"
#include "streams/queue.h"
#include "streams/stream.h"
#include "streams/work.h"

static const size_t default_limits[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128,
};

static CUresult context_open(CUcontext context)
{
    CUresult result = sim_stream_new(context, SIM_STREAM_LEGACY, CU_STREAM_DEFAULT, 0, &context->legacy);
    if (result == CUDA_SUCCESS)
        result = sim_stream_new(context, SIM_STREAM_MARKER, CU_STREAM_NON_BLOCKING, 0, &context->marker);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(context->limits, default_limits, sizeof default_limits);
    context->id = ++sim.next_id; /* a primary one that is taken up again is another one */
    context->error = CUDA_SUCCESS;
    context->fault = 0;
    context->alive = true;
    sim_card_context(context->device, true);
    return CUDA_SUCCESS;
}

CUresult sim_context_new(struct sim_device *device, unsigned flags, bool primary, CUcontext *ret)
{
    CUcontext context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->flags = flags;
    context->primary = primary;
    context->next = sim.contexts;
    sim.contexts = context;
    sim_handle_add(&context->handle, SIM_KIND_CONTEXT);
    CUresult result = context_open(context);
    if (result == CUDA_SUCCESS)
        *ret = context;
    return result;
}

/* Calls for all work of a device go over the list, so a context that is gone would cost each of them time for ever. A
   primary one may be taken up again, and streams of a green one outlive it: those stay. `next` stays too, because a thread
   that is at this context in the list, and waits unlocked, goes on from it. */
static void context_unlist(CUcontext context)
{
    CUcontext *link = &sim.contexts;
    while (*link != context)
        link = &(*link)->next;
    *link = context->next;
}

/* Waits for its work, then takes all that it holds. VMM memory and pools outlive it. */
void sim_context_close(CUcontext context)
{
    sim_wait_context(context);
    if (!context->alive)
        return;
    context->alive = false;
    sim_card_context(context->device, false);
    for (CUstream s = context->streams, next; s; s = next) {
        next = s->next;
        if (s->alive)
            sim_stream_end(s, true);
    }
    sim_deps_free(context->barriers);
    context->barriers = NULL;
    sim_clock_clear(&context->barrier_clock);
    sim_clock_clear(&context->gone_clock);
    sim_module_drop_context(context);
    sim_memory_drop_context(context);
    memset(context->peers, 0, sizeof context->peers);
    if (!context->primary)
        context_unlist(context);
}

CUresult sim_context_retain(struct sim_device *device, CUcontext *ret)
{
    CUresult result = CUDA_SUCCESS;
    if (!device->primary)
        result = sim_context_new(device, device->primary_flags, true, &device->primary);
    else if (!device->primary->alive)
        result = context_open(device->primary);
    if (result != CUDA_SUCCESS)
        return result;
    device->primary->flags = device->primary_flags;
    device->primary_refs++;
    *ret = device->primary;
    return CUDA_SUCCESS;
}

void sim_context_release(struct sim_device *device)
{
    if (--device->primary_refs)
        return;
    sim_wait_context(device->primary);
    if (device->primary_refs == 0) /* nobody took it up again meanwhile */
        sim_context_close(device->primary);
}

CUresult sim_context_new_green(struct sim_device *device, CUcontext parent, CUgreenCtx green, CUcontext *ret)
{
    CUresult result = sim_context_new(device, parent->flags, false, ret);
    if (result == CUDA_SUCCESS) {
        (*ret)->parent = parent;
        (*ret)->green = green;
    }
    return result;
}

void sim_context_detach(CUcontext green)
{
    sim_wait_context(green);
    for (CUstream s = green->streams; s; s = s->next) {
        if (s->capture)
            sim_capture_ruin(s->capture);
    }
    green->alive = false;
    sim_card_context(green->device, false);
    green->error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    sim_deps_free(green->barriers);
    green->barriers = NULL;
}
