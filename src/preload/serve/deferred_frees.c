/* The first gate of a free, and the moments at which frees that were put off are made. */
#include "serve/deferred_frees.h"

#include <stddef.h>

#include "base/rest.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/worker_thread.h"
#include "serve/free_mode.h"
#include "services/hazard_annotations.h"
#include "track/captures.h"
#include "track/context_wait.h"
#include "track/graph_blocks.h"
#include "track/stream_handle.h"

/* A driver without events over contexts has a helper thread wait for them. One that was sent off gets to its wait before a
   capture begins, since afterwards it may begin none. */
static void let_helper_wait(void)
{
    enum { RESTS = 250, REST_NS = 20000 }; /* 5 ms and more */
    for (int i = 0; i < RESTS && sg_worker_has_begun() && !sg_captures_waits_aside(); i++)
        sg_rest(REST_NS);
}

/* For the moment before a capture begins or the program waits: afterwards no event can be recorded, or none is needed
   any more. */
void sg_memory_fence(void)
{
    struct sg_core *core = sg_captures_active() ? NULL : sg_enter();
    if (!core)
        return;
    sg_memory_settle(core);
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        sg_core_poll(core, device);
    sg_leave();
    let_helper_wait();
}

void sg_memory_run_deferred(struct sg_core *core)
{
    if (!sg_memory_has_deferred() || sg_captures_active())
        return;
    sg_captures_run_deferred(core);
    sg_graphs_run_deferred(core);
}

static void deferred_settle(struct sg_core *core, bool refused)
{
    if (!sg_captures_active())
        sg_graphs_await_destroyed(refused);
    sg_memory_run_deferred(core);
}

void sg_memory_settle(struct sg_core *core)
{
    deferred_settle(core, /* refused */ false);
}

void sg_memory_settle_refused(struct sg_core *core)
{
    deferred_settle(core, /* refused */ true);
}

/* A launch of a destroyed graph may still run. Its memory is free when that work is done, natively too. */
bool sg_memory_settle_launches(struct sg_core *core)
{
    const struct sg_driver *driver = sg_process_driver();
    CUcontext current;
    if (!sg_graphs_retain_freed() || sg_captures_active() || driver->ctx_get_current(&current) != CUDA_SUCCESS ||
        !current || sg_context_wait(current) != CUDA_SUCCESS)
        return false;
    sg_memory_settle_refused(core);
    return true;
}

/* The driver's answer to a free while a capture is active. It judges by the mode of this thread and of the captures. A
   call that it forbids ruins those. Asked by a small allocation of its own; where it allows that, freeing it waits as
   freeing the program's block would. */
static CUresult free_forbidden(void)
{
    const struct sg_real *real = sg_real();
    CUdeviceptr probe;
    CUresult result = real->cuMemAlloc_v2(&probe, 1);
    if (result == CUDA_SUCCESS)
        real->cuMemFree_v2(probe);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

/* During capture, cudaFreeAsync on the captured stream may only free the graph's own memory. Other memory is refused,
   and the capture is ruined as by any call that it forbids. */
static CUresult free_no_node(CUstream stream)
{
    CUresult result = sg_real()->cuStreamQuery(stream);
    return result == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

/* A free while a capture is active. A free in stream order notes a number, and the driver is not asked. */
CUresult sg_free_captured(struct sg_core *core, CUdeviceptr address, const struct sg_request *request, bool *ret_done)
{
    bool ordered = sg_free_mode(request) != SG_FREE_SYNC_STRICT;
    CUstream stream = request->stream;
    *ret_done = true;
    if (request->stream_order && !request->driver_allowed && !request->was_deferred &&
        sg_captures_capturing(stream, false))
        return free_no_node(stream);
    CUresult result = ordered || request->driver_allowed ? CUDA_SUCCESS : free_forbidden();
    if (result != CUDA_SUCCESS)
        return result;
    if (sg_annotate_on && !request->was_deferred)
        sg_annotate_freed(core, address);
    if (request->has_stream || sg_captures_own(&stream))
        (void)sg_graphs_adopt(core, sg_stream_named(stream, false), address, /* fresh */ false);
    switch (sg_graphs_retain(address, request, /* waited */ false)) {
    case SG_GRAPHS_RETAINED:
        if (request->torch && request->has_stream && ordered)
            sg_graphs_add_spare(sg_stream_named(request->stream, false), address);
        return CUDA_SUCCESS;
    case SG_GRAPHS_RETAINED_BEFORE:
        return CUDA_ERROR_INVALID_VALUE;
    case SG_GRAPHS_FREE:
        break;
    }
    *ret_done = sg_free_mode(request) != SG_FREE_SYNC_STREAM;
    return *ret_done ? sg_captures_defer_free(core, address, request) : CUDA_SUCCESS;
}

/* Only the start of a live block may be put off. */
bool sg_free_is_block(struct sg_core *core, CUdeviceptr address)
{
    struct sg_block_info block;
    return sg_core_block(core, address, &block) == CUDA_SUCCESS && block.base == address;
}

/* The block belongs to a graph. Callers that expect a wait still get one. */
CUresult sg_free_kept(struct sg_core *core, CUdeviceptr address, const struct sg_request *request, bool *ret_done)
{
    bool waits = sg_free_mode(request) == SG_FREE_SYNC_STRICT, all = false;
    CUcontext context = NULL;
    CUresult result = waits ? sg_process_driver()->ctx_get_current(&context) : CUDA_SUCCESS;
    if (waits && result == CUDA_SUCCESS)
        result = sg_core_wait(core, address, context, &all);
    *ret_done = result != CUDA_SUCCESS;
    if (*ret_done)
        return result;
    if (waits) /* so that it is free at once where its graph is gone, as natively */
        sg_graphs_await_destroyed_of(address);
    enum sg_graphs_answer answer = sg_graphs_retain(address, request, all);
    *ret_done = answer != SG_GRAPHS_FREE;
    return answer == SG_GRAPHS_RETAINED_BEFORE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
