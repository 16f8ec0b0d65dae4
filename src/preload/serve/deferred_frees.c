/* The first gate of a free, and the moments at which frees that were put off are made. */
#include "serve/deferred_frees.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/rest.h"
#include "inspect/free_memory.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/worker_thread.h"
#include "serve/free_mode.h"
#include "services/hazard_annotations.h"
#include "track/captures.h"
#include "track/context_wait.h"
#include "track/graph_blocks.h"
#include "track/stream_handle.h"

/* Asks what is complete by now, and has a helper thread wait for what is not, on all devices. */
static void deferred_poll(struct sg_core *core)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++)
        sg_core_poll(core, device);
}

/* True if the helper thread that was sent off is not at its wait yet. Before a capture: also if it waits for less than was freed
   by now. */
static bool helper_is_wanted(struct sg_core *core, bool capture)
{
    bool wanted = !sg_captures_waits_aside();
    for (int device = 0; device < SG_DEVICES_MAX && capture && !wanted; device++)
        wanted = sg_core_awaits_another(core, device);
    return wanted;
}

/* A driver without events over contexts has a helper thread wait for them. It gets to its wait before a capture begins, since
   afterwards it may begin none. Where it is at an earlier wait still, that ends first and the next begins. On a busy machine a
   thread has no processor for a while, so this lasts up to 2 s there. Before a wait of the program's it is 5 ms and more.

   For example, two blocks are freed one after the other, and a capture begins. The first free has sent the thread off, which
   waits for that. The second needs another wait. */
static void let_helper_wait(struct sg_core *core, bool capture)
{
    enum { REST_NS = 20000, CAPTURE_NS = 2000000000, OTHER_NS = 5000000, SENT_MOST = 4 /* times: a wait may fail */ };
    uint64_t most_ns = capture ? CAPTURE_NS : OTHER_NS;
    int sent = 0;
    for (uint64_t waited_ns = 0; waited_ns < most_ns && sg_worker_has_begun() && helper_is_wanted(core, capture);) {
        uint64_t began = sg_clock_coarse_ns();
        sg_rest(REST_NS);
        uint64_t took = sg_clock_coarse_ns() - began;
        waited_ns += took > REST_NS ? took : REST_NS;
        if (capture && !sg_worker_has_begun() && sent++ < SENT_MOST)
            deferred_poll(core);
    }
}

/* A moment later no event can be recorded, or none is needed any more. */
void sg_memory_fence(bool capture)
{
    struct sg_core *core = sg_captures_active() ? NULL : sg_enter();
    if (!core)
        return;
    sg_memory_settle(core);
    deferred_poll(core);
    let_helper_wait(core, capture);
    sg_leave();
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
