/* The gates of a free, in order. A capture may begin between any two steps. Then the core's driver refuses to wait with
   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the free goes back to the first gate. Nothing has changed by then.

   For example, a free finds no capture and asks the core, mode STRICT. Another thread begins a capture before the
   core waits. The wait is refused, the block is still live, and the first gate puts the free off. */
#include "serve/free.h"

#include <stddef.h>

#include "check/frees.h"
#include "check/guard.h"
#include "check/state.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "serve/contents.h"
#include "serve/deferred_frees.h"
#include "serve/free_mode.h"
#include "serve/pause.h"
#include "serve/used_streams.h"
#include "services/hazard_annotations.h"
#include "services/recorder.h"
#include "track/captures.h"
#include "track/graph_blocks.h"
#include "track/streams.h"

/* Waits for a step of a stream that is the next one now. cuStreamQuery is not enough: a blocking stream is ordered
   after the legacy stream's work only from its next step on. */
static CUresult free_wait_for_step(CUstream stream)
{
    const struct sg_driver *driver = sg_process_driver();
    CUevent event;
    CUresult result = driver->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->event_record(event, stream);
    if (result == CUDA_SUCCESS)
        result = driver->event_synchronize(event);
    (void)driver->event_destroy(event);
    return result;
}

/* A free that is a step of a stream waits for that stream alone, where it can be followed. All other use of the block
   has to come before that step. Source: the text of cuMemFreeAsync in cuda.h. Where no event can be had either, the
   host waits, for that stream and not for work elsewhere that may never end. */
static void free_order_by(struct sg_core *core, CUdeviceptr address, const struct sg_request *request,
    struct sg_tag *tag)
{
    struct sg_block_info block;
    struct sg_tracked_stream tracked;
    if (sg_core_block(core, address, &block) != CUDA_SUCCESS || block.base != address)
        return; /* the core refuses it */
    bool now = !request->driver_allowed && !request->was_deferred;
    if (tag->sync == SG_FREE_SYNC_EVENT) {
        if (now && !sg_process_driver()->ctx_record_event && !sg_captures_any() &&
            free_wait_for_step(request->stream) == CUDA_SUCCESS)
            tag->sync = SG_FREE_SYNC_COMPLETE;
        return;
    }
    if (now && sg_streams_track(core, request->stream, false, &tracked) && tracked.device == block.device) {
        tag->slot = tracked.slot;
        tag->in_order = true;
    }
    if (sg_memory_record_stream(core, address, request->stream) != CUDA_SUCCESS)
        tag->sync = SG_FREE_SYNC_EVENT;
}

/* The core's free, in the mode `sync`. Falls back from stream order to an event over all work, and from that to a wait.
   */
static CUresult free_by_core(struct sg_core *core, CUdeviceptr address, const struct sg_request *request,
    enum sg_free_sync sync)
{
    struct sg_tag tag;
    int device;
    CUresult result = sg_memory_describe(core, request, &tag, &device);
    if (result != CUDA_SUCCESS)
        return result;
    tag.sync = sync;
    if (request->stream_order && tag.sync != SG_FREE_SYNC_COMPLETE)
        free_order_by(core, address, request, &tag);
    struct sg_guard *guard = sg_guard_on() ? sg_guard_freeing(core, address, &tag) : NULL;
    struct sg_freed *checked = sg_check_on() ? sg_check_freeing(core, address, &tag) : NULL;
    /* Where nothing is kept this is a read of one word. */
    bool kept = atomic_load_explicit(&sg_contents_any, memory_order_relaxed) > 0;
    uint32_t orders = kept ? sg_pause_orders() : 0;
    result = sg_core_free(core, address, &tag);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE &&
        result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && tag.sync != SG_FREE_SYNC_STRICT) {
        tag.sync = SG_FREE_SYNC_STRICT;
        result = sg_core_free(core, address, &tag);
    }
    if (kept && result == CUDA_SUCCESS)
        sg_pause_freed(address, orders);
    if (checked)
        sg_check_freed(checked, result == CUDA_SUCCESS);
    if (guard)
        sg_guard_freed(core, guard, &tag, result == CUDA_SUCCESS);
    if (sg_check_on() && result == CUDA_ERROR_INVALID_VALUE)
        sg_check_refused(core, address, &tag);
    sg_recorder_tick(core, device);
    return result;
}

/* True if the program's address is one at which a guarded block was shown, and none begins there. */
static bool free_is_refused(struct sg_core *core, CUdeviceptr address, const struct sg_request *request)
{
    struct sg_tag tag;
    int device;
    return sg_guard_on() && sg_is_stand_in(address) &&
           sg_memory_describe(core, request, &tag, &device) == CUDA_SUCCESS && sg_guard_refuses(address, &tag);
}

/* First, a block that belongs to a capture or a graph is put off. The core frees the others. Last comes the answer to the
   program where a capture has begun meanwhile, or where the driver is gone. */
CUresult sg_memory_free(struct sg_core *core, CUdeviceptr shown, const struct sg_request *request)
{
    struct sg_tag tag;
    int device;
    if (free_is_refused(core, shown, request))
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = sg_inner(shown);
    bool done = false, capturing = sg_captures_active(), wrong = capturing && !sg_free_is_block(core, address);
    CUresult result = CUDA_SUCCESS;
    if (sg_annotate_on && !request->was_deferred && !capturing &&
        sg_memory_describe(core, request, &tag, &device) == CUDA_SUCCESS)
        sg_annotate_freed(core, address); /* not where nothing can be freed, as in a function of the host */
    if (capturing && !wrong)
        result = sg_free_captured(core, address, request, &done);
    else if (sg_graphs_retain_any() && !request->was_deferred && sg_free_is_block(core, address))
        result = sg_free_kept(core, address, request, &done);
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && !capturing) /* one has begun, and nothing was asked yet */
        result = sg_free_captured(core, address, request, &done);
    if (done)
        return result;
    /* No block begins there: the core is to say so without a wait, which the captures would forbid. */
    result = free_by_core(core, address, request, wrong ? SG_FREE_SYNC_EVENT : sg_free_mode(request));
    bool begun = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a capture has, since it was looked for */
    if (result == CUDA_ERROR_NOT_FOUND || (begun && !sg_free_is_block(core, address)))
        return CUDA_ERROR_INVALID_VALUE; /* it was ours when the caller asked, and has gone with its context since */
    if (begun)
        return sg_free_mode(request) == SG_FREE_SYNC_STRICT ? sg_free_captured(core, address, request, &done)
                                                            : sg_captures_defer_free(core, address, request);
    if (!sg_driver_is_sticky(result))
        return result;
    sg_core_disable(core);
    return request->torch || result == CUDA_ERROR_DEINITIALIZED ? CUDA_SUCCESS : result;
}

/* Memory that the driver served may belong to a graph too. It is kept until the graph is gone, then freed by the
   driver. */
CUresult sg_memory_free_passthrough(CUdeviceptr address, const struct sg_request *request)
{
    struct sg_core *core = sg_captures_active() || sg_graphs_retain_any() ? sg_enter() : NULL;
    enum sg_graphs_answer answer = SG_GRAPHS_FREE;
    if (core) {
        if (request->has_stream && sg_captures_active())
            (void)sg_graphs_adopt(core, sg_stream_named(request->stream, false), address, /* fresh */ false);
        answer = sg_graphs_retain(address, request, /* waited */ false);
        sg_leave();
    }
    if (answer == SG_GRAPHS_FREE) {
        sg_memory_wait_cross_device();
        return sg_real()->cuMemFree_v2(address);
    }
    return answer == SG_GRAPHS_RETAINED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
