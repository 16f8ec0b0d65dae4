/* Record of a use: by the stream's slot on the block's device, or by slot 0 for a stream that is not followed. */
#include "serve/used_streams.h"

#include <stdatomic.h>
#include <stddef.h>

#include "process/hooks.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "track/contexts.h"
#include "track/streams.h"

static atomic_bool served_cross_device;

void sg_memory_served_cross_device(void)
{
    if (!atomic_load_explicit(&served_cross_device, memory_order_relaxed))
        atomic_store(&served_cross_device, true);
}

void sg_memory_record_served(CUdeviceptr address, CUstream stream)
{
    CUcontext home = NULL;
    (void)sg_real()->cuPointerGetAttribute(&home, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    if (sg_streams_context_of(stream) != home)
        sg_memory_served_cross_device();
}

/* A stream that can't be followed is covered by slot 0, all work of the context, unless it is another device's. Blocks
   of fixed segments, and those that the driver served, need none of their context: their free waits for that. */
CUresult sg_memory_record_stream(struct sg_core *core, CUdeviceptr address, CUstream stream)
{
    struct sg_block_info block;
    struct sg_tracked_stream tracked;
    int device;
    CUresult result = sg_core_block(core, sg_inner(address), &block);
    if (result == CUDA_ERROR_NOT_FOUND) {
        sg_memory_record_served(address, stream);
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && sg_streams_track_on(core, stream, block.device, &tracked)) {
        result = sg_core_record_stream(core, block.base, tracked.slot);
    } else if (result == CUDA_SUCCESS) {
        result = sg_core_record_stream(core, block.base, 0);
        if (result == CUDA_SUCCESS && !(sg_streams_device(stream, &device) && device == block.device))
            result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_ERROR_NOT_FOUND)
        return result;
    if (sg_streams_context_of(stream) != block.context)
        sg_core_used_cross_device(core, block.base);
    return CUDA_SUCCESS;
}

/* Nothing while there is one device, or no block of the driver's was ever used on another. */
void sg_memory_wait_cross_device(void)
{
    bool cross_device = sg_contexts_devices() && atomic_load_explicit(&served_cross_device, memory_order_relaxed);
    struct sg_core *core = cross_device ? sg_enter() : NULL;
    if (!core)
        return;
    (void)sg_core_wait_for_all(core); /* what has failed, the driver's free says too */
    sg_leave();
}
