/* The second ladder, after that of core/grow.h: an allocation that the core can't serve. Each step is a function that
   says whether asking again can help; the core is asked again after each that did.

   For example, 1 GiB is asked for. The core answers CUDA_ERROR_OUT_OF_MEMORY; no graph and no capture holds
   anything, there are no pools, no idle pages. Another process gives 2 GiB back, the core is asked again and serves.
   The driver is never asked. */
#include "serve/alloc.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "check/allocations.h"
#include "check/guard.h"
#include "check/live.h"
#include "check/state.h"
#include "inspect/core_state.h"
#include "process/capture_mode.h"
#include "process/hooks.h"
#include "process/host_limits.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "report/refusals.h"
#include "serve/deferred_frees.h"
#include "serve/free_mode.h"
#include "serve/make_room.h"
#include "serve/pause.h"
#include "services/alias_probe.h"
#include "services/hazard_annotations.h"
#include "services/outside_trace.h"
#include "services/overflow_peers.h"
#include "services/recorder.h"
#include "services/trim.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/graph_blocks.h"
#include "track/held_outside.h"
#include "track/stream_handle.h"

enum { GUARD_WAIT_NS = 100000000 }; /* for the work before the frees of guarded blocks */

/* A limit that the driver may pass isn't one. */
static bool alloc_is_limited(struct sg_core *core, int device)
{
    return sg_conf_limit(sg_process_conf(), SIZE_MAX >> 1) < SIZE_MAX >> 1 || sg_core_is_limited(core, device);
}

/* The driver has served what was asked of us. */
static void alloc_note_passed_on(struct sg_core *core, int device, CUdeviceptr address, size_t bytes)
{
    sg_core_passthrough(core, device, address, bytes);
    sg_outside_taken(SEGALLOC_OUTSIDE_DRIVER, address, device, bytes);
    sg_outside_note(core, device);
}

/* Asks the driver, which on an integrated device would give what the host lacks. Below 0: the current device. */
static CUresult alloc_ask_driver(int device, size_t bytes, CUdeviceptr *ret)
{
    return sg_host_limits_refuse(device, bytes) ? CUDA_ERROR_OUT_OF_MEMORY : sg_real()->cuMemAlloc_v2(ret, bytes);
}

/* Asks the driver for what the core could not serve, in relaxed mode during a capture. The block is booked as the
   driver's. */
static CUresult alloc_pass_through(struct sg_core *core, int device, size_t bytes, CUdeviceptr *ret)
{
    CUstreamCaptureMode mode;
    bool relaxed = sg_captures_active() && sg_capture_mode_relax(&mode); /* one may have begun since */
    CUresult result = alloc_ask_driver(device, bytes, ret);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    if (result == CUDA_SUCCESS)
        alloc_note_passed_on(core, device, *ret, bytes);
    return result;
}

/* True if there is that much that nobody uses, though the core could not make a block of it. */
static bool alloc_is_idle(struct sg_core *core, int device, size_t bytes)
{
    size_t free_bytes = 0, total_bytes;
    if (sg_process_driver()->mem_info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        return false;
    sg_core_mem_info(core, device, &free_bytes, &total_bytes);
    return free_bytes >= bytes;
}

/* The core may lack what it keeps its books in, or addresses; the driver may not, once it has the memory. */
static CUresult alloc_pass_through_idle(struct sg_core *core, int device, size_t bytes, CUdeviceptr *ret)
{
    CUresult result = alloc_pass_through(core, device, bytes, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && alloc_is_idle(core, device, bytes) && sg_made_room_by(core))
        result = alloc_pass_through(core, device, bytes, ret);
    return result;
}

/* No reserve of ours is used for it, but idle pages make room. For example, NCCL's buffers are asked for while 2 GiB
   are idle here: the driver refuses, 2 GiB go back, the driver serves. */
CUresult sg_memory_passthrough(struct sg_core *core, size_t bytes, CUdeviceptr *ret)
{
    CUcontext context;
    int device;
    CUresult result = alloc_ask_driver(-1, bytes, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = alloc_ask_driver(-1, bytes, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(-1))
        result = alloc_ask_driver(-1, bytes, ret);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_served(bytes);
    if (result == CUDA_SUCCESS && sg_contexts_current(core, &context, &device) == CUDA_SUCCESS)
        alloc_note_passed_on(core, device, *ret, bytes);
    return result;
}

/* A block that is handed out in a capture belongs to its graph. */
static void alloc_adopt(struct sg_core *core, const struct sg_request *request, CUdeviceptr address)
{
    CUstream stream = request->stream;
    if (request->has_stream || sg_captures_own(&stream))
        (void)sg_graphs_adopt(core, sg_stream_named(stream, false), sg_inner(address), /* fresh */ true);
}

/* True if memory is kept back that captures keep from being asked about. */
static bool alloc_is_held_by_captures(struct sg_core *core, int device)
{
    struct sg_stats stats;
    return sg_captures_runs_deferred() ||
           (sg_captures_active() && (atomic_load_explicit(&sg_captures_deferred, memory_order_relaxed) > 0 ||
                                        (sg_core_stats(core, device, &stats) && stats.value[SG_STAT_pending_bytes])));
}

/* Where all that is left waits for captures to end, so does this, for a bounded time: natively that memory would be
   free. `ends`: sg_captures_ends() before the core was asked, since one may have ended after that. */
static CUresult alloc_after_captures(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag,
    unsigned ends, CUdeviceptr *ret)
{
    enum { TRIES = 16 }; /* others may go on capturing for ever */
    uint64_t left_ns = (uint64_t)(sg_process_conf()->wait_limit * 1e9);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < TRIES && result == CUDA_ERROR_OUT_OF_MEMORY; i++) {
        bool held = alloc_is_held_by_captures(core, device) && sg_captures_await(&left_ns);
        if (!held && sg_captures_ends() == ends)
            break;
        ends = sg_captures_ends();
        sg_memory_settle_refused(core);
        result = sg_core_malloc(core, device, bytes, tag, ret);
    }
    return result;
}

/* Freed blocks that a graph keeps come back once the graph is gone and its last launch is done. */
static CUresult alloc_after_graphs(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret)
{
    if (!sg_graphs_retain_freed() || sg_captures_active())
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_memory_settle_refused(core);
    CUresult result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_memory_settle_launches(core))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    return result;
}

/* The last step, with the option `overflow`: what is lacking lies on another device or in the host's memory
   (core/remap/overflow.h). An integrated device has no other memory than that. */
static CUresult alloc_overflow(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret)
{
    struct sg_tag last = *tag;
    struct sg_host_limits limits;
    if (!sg_conf_overflows(sg_process_conf()) || (sg_host_limits_read(device, &limits) && limits.integrated))
        return CUDA_ERROR_OUT_OF_MEMORY;
    last.overflow = true;
    if (sg_process_conf()->overflow.peer)
        sg_overflow_peers_look(core, device);
    return sg_core_malloc(core, device, bytes, &last, ret);
}

/* The second ladder. Each line is one step, and a step that could help is followed by asking the core again. Below it the
   driver: it may have memory that the core can't use, where it lacks addresses or host memory. */
CUresult sg_memory_not_served(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, unsigned ends,
    CUresult result, CUdeviceptr *ret)
{
    bool noted = true; /* by the core: what it lacks */
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_alias_probe_gave_back(device))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_guard_on() && sg_guard_settle_all(GUARD_WAIT_NS))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = alloc_after_graphs(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = alloc_after_captures(core, device, bytes, tag, ends, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_outside_waited_for_pools(tag->context))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_process_conf()->overflow.peer && sg_core_return_from(core, device))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_core_left_pages(core, device) && sg_made_room_by(core))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_trim_ask_others(sg_process_driver(), device, bytes))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_NOT_SUPPORTED || (result == CUDA_ERROR_OUT_OF_MEMORY && !alloc_is_limited(core, device))) {
        CUresult first = result;
        result = alloc_pass_through_idle(core, device, bytes, ret);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && first != result &&
            sg_trim_ask_others(sg_process_driver(), device, bytes))
            result = alloc_pass_through(core, device, bytes, ret);
        noted = first == CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            sg_pause_passed_on(tag->memory_tag);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = alloc_overflow(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && noted)
        sg_refusals_add(core, device, bytes);
    if (result == CUDA_ERROR_NOT_PERMITTED && tag->memory_tag)
        sg_pause_refused(core, tag, bytes);
    if (sg_driver_is_sticky(result))
        sg_core_disable(core);
    return result;
}

/* The slow path of an allocation. Bytes that a capture's own stream has freed in it serve it again at once. Otherwise
   frees that are due come first, then the core, then the ladder. A block that was given out in a capture belongs to its
   graph. */
CUresult sg_memory_alloc(struct sg_core *core, size_t bytes, const struct sg_request *request, CUdeviceptr *ret)
{
    struct sg_tag tag;
    int device;
    if (!ret || !bytes || sg_memory_describe(core, request, &tag, &device) != CUDA_SUCCESS)
        return sg_real()->cuMemAlloc_v2(ret, bytes);
    if (sg_contexts_green(tag.context)) /* memory is the primary context's */
        tag.context = sg_contexts_primary_of(device);
    CUstreamCaptureMode mode;
    bool capturing = sg_captures_active();
    if (capturing && request->torch && request->has_stream &&
        sg_graphs_reuse(sg_stream_named(request->stream, false), bytes, ret)) {
        if (sg_annotate_on)
            sg_annotate_given(*ret, bytes);
        if (sg_check_on())
            sg_live_reused(*ret, bytes);
        return CUDA_SUCCESS;
    }
    bool relaxed = capturing && sg_capture_mode_relax(&mode);
    sg_memory_run_deferred(core);
    sg_recorder_device(sg_process_driver(), device);
    sg_trim_use(device);
    unsigned ends = sg_captures_ends();
    bool guarded = sg_guard_on() && sg_guard_wants(bytes);
    size_t room = sg_check_on() ? sg_check_room(core, device, bytes) : bytes;
    tag.modest = room > bytes; /* no allocation fails, and nobody gives memory up, for what is checked behind it */
    CUresult result = sg_core_malloc(core, device, room, &tag, ret);
    if (result != CUDA_SUCCESS && tag.modest) {
        tag.modest = false;
        room = bytes;
        result = sg_core_malloc(core, device, bytes, &tag, ret);
    }
    if (result != CUDA_SUCCESS) {
        room = bytes;
        result = sg_memory_not_served(core, device, bytes, &tag, ends, result, ret);
    }
    if (result == CUDA_SUCCESS)
        sg_refusals_note_served(bytes);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    bool ours = result == CUDA_SUCCESS && sg_core_owns(core, *ret);
    if (sg_check_on() && ours) /* of a context that has ended */
        sg_live_forget(*ret);
    guarded = guarded && ours && sg_guard_given(core, device, &tag, bytes, ret);
    if (sg_annotate_on && ours && !guarded) /* else its pages are an owner by themselves */
        sg_annotate_given(*ret, bytes);
    if (sg_check_on() && ours && !guarded)
        sg_check_given(core, device, request, &tag, *ret, bytes, room);
    if (sg_guard_on())
        sg_guard_settle();
    if (capturing && result == CUDA_SUCCESS)
        alloc_adopt(core, request, *ret);
    sg_recorder_tick(core, device);
    return result;
}
