#include "inspect/core_state.h"
#include "serve/requests.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "process/capture_mode.h"
#include "track/captures.h"
#include "services/alias_probe.h"
#include "track/contexts.h"
#include "services/hazard_annotations.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "track/make_room.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/fast_path.h"
#include "services/outside_trace.h"
#include "services/recorder.h"
#include "report/refusals.h"
#include "base/rest.h"
#include "track/streams.h"
#include "torch/torch.h"
#include "services/trim.h"

/* True if the streams that could have seen a block are known: else a free covers whatever there is. */
static bool knows_users(void)
{
    return sg_streams_complete() && !sg_streams_untracked();
}

static bool records_all_users(const struct sg_request *request)
{
    return request->named || request->stream_order || (request->pluggable && sg_memory_torch_recorded());
}

/* Whom a free in stream order waits for. A tensor's own stream may have its memory at once, by PyTorch's rule. Other streams
   of the device may have it too, which PyTorch never does. So its possible users there count, recorded or not. */
static enum sg_user_rule user_rule(const struct sg_request *request)
{
    if (records_all_users(request))
        return SG_USERS_RECORDED;
    return request->torch && sg_memory_hooks_record_stream() ? SG_USERS_POSSIBLE_HERE : SG_USERS_POSSIBLE;
}

/* When a free takes effect, by who calls and how. Captures, graphs and streams that cannot be followed may change that
   later. Stream order needs the streams to be followed. Without that an event over the whole context, which is ordered
   after all its streams, takes its place. */
static enum sg_free_sync free_mode(const struct sg_request *request)
{
    enum sg_free_sync ordered =
        sg_following() && (records_all_users(request) || knows_users()) ? SG_FREE_SYNC_STREAM : SG_FREE_SYNC_EVENT;
    if (request->is_complete)
        return SG_FREE_SYNC_COMPLETE;
    if (request->stream_order)
        return ordered; /* cudaFreeAsync waits for nothing, whatever cudaFree is to do */
    switch (sg_process_conf()->free_sync) {
    case SG_FREE_SYNC_STRICT:
        return request->was_deferred ? SG_FREE_SYNC_EVENT : SG_FREE_SYNC_STRICT;
    case SG_FREE_SYNC_EVENT:
        return SG_FREE_SYNC_EVENT;
    case SG_FREE_SYNC_STREAM:
        return ordered;
    case SG_FREE_SYNC_AUTO:
    case SG_FREE_SYNC_COMPLETE: /* is no value of the option */
        break;
    }
    return request->torch || request->named ? ordered : request->was_deferred ? SG_FREE_SYNC_EVENT
        : SG_FREE_SYNC_STRICT;
}

struct sg_request sg_memory_origin(int caller)
{
    struct sg_request request = {0};
    if (caller == SG_CALLER_TORCH && sg_torch_direct() && !sg_self.torch_cached) {
        request.torch = true;
        request.has_stream = sg_torch_stream(&request.stream);
    }
    return request;
}

struct sg_tag sg_memory_tag(struct sg_core *core, const struct sg_request *request, CUcontext context, int device)
{
    struct sg_tag tag = {
        .context = context,
        .stream = request->stream,
        .has_stream = request->has_stream,
        .torch = request->torch,
        .sync = free_mode(request),
        .user_rule = user_rule(request),
        .missed_calls = !knows_users(),
        .site = sg_self.place.shown,
        .phase = sg_self.place.phase,
    };
    struct sg_tracked_stream tracked;
    if (sg_following() && request->has_stream)
        sg_streams_serve(device);
    /* What is given out in a capture is used whenever its graph is launched, in whichever stream: it must be
       complete. */
    if (sg_following() && request->has_stream && !request->stream_order &&
        !sg_captures_capturing(request->stream, false) &&
        sg_streams_track(core, request->stream, false, &tracked) && tracked.device == device)
        tag.slot = tracked.slot;
    return tag;
}

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
    CUresult result = sg_core_block(core, address, &block);
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

static CUresult describe(struct sg_core *core, const struct sg_request *request, struct sg_tag *ret, int *ret_device)
{
    CUcontext context;
    CUresult result = sg_contexts_current(core, &context, ret_device);
    if (result != CUDA_SUCCESS)
        return result;
    *ret = sg_memory_tag(core, request, context, *ret_device);
    return CUDA_SUCCESS;
}

/* A limit that the driver may pass isn't one. */
static bool is_limited(struct sg_core *core, int device)
{
    return sg_conf_limit(sg_process_conf(), SIZE_MAX >> 1) < SIZE_MAX >> 1 || sg_core_is_limited(core, device);
}

/* The driver has served what was asked of us. */
static void note_passed_on(struct sg_core *core, int device, CUdeviceptr address, size_t bytes)
{
    sg_core_passthrough(core, device, address, bytes);
    sg_outside_taken(SEGALLOC_OUTSIDE_DRIVER, address, device, bytes);
    sg_outside_note(core, device);
}

static CUresult pass_through(struct sg_core *core, int device, size_t bytes, CUdeviceptr *ret)
{
    CUstreamCaptureMode mode;
    bool relaxed = sg_captures_active() && sg_capture_mode_relax(&mode); /* one may have begun since */
    CUresult result = sg_real()->cuMemAlloc_v2(ret, bytes);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    if (result == CUDA_SUCCESS)
        note_passed_on(core, device, *ret, bytes);
    return result;
}

/* True if there is that much that nobody uses, though the core could not make a block of it. */
static bool is_idle(struct sg_core *core, int device, size_t bytes)
{
    size_t free_bytes = 0, total_bytes;
    if (sg_process_driver()->mem_info(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        return false;
    sg_core_mem_info(core, device, &free_bytes, &total_bytes);
    return free_bytes >= bytes;
}

/* The core may lack what it keeps its books in, or addresses; the driver may not, once it has the memory. */
static CUresult pass_through_idle(struct sg_core *core, int device, size_t bytes, CUdeviceptr *ret)
{
    CUresult result = pass_through(core, device, bytes, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && is_idle(core, device, bytes) && sg_made_room_by(core))
        result = pass_through(core, device, bytes, ret);
    return result;
}

CUresult sg_memory_passthrough(struct sg_core *core, size_t bytes, CUdeviceptr *ret)
{
    const struct sg_real *real = sg_real();
    CUcontext context;
    int device;
    CUresult result = real->cuMemAlloc_v2(ret, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by(core))
        result = real->cuMemAlloc_v2(ret, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_made_room_by_others(-1))
        result = real->cuMemAlloc_v2(ret, bytes);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_served(bytes);
    if (result == CUDA_SUCCESS && sg_contexts_current(core, &context, &device) == CUDA_SUCCESS)
        note_passed_on(core, device, *ret, bytes);
    return result;
}

/* A block that is handed out in a capture belongs to its graph. */
static void adopt(struct sg_core *core, const struct sg_request *request, CUdeviceptr address)
{
    CUstream stream = request->stream;
    if (request->has_stream || sg_captures_own(&stream))
        (void)sg_graphs_adopt(core, sg_stream_named(stream, false), address, /* fresh */ true);
}

/* True if memory is kept back that captures keep from being asked about. */
static bool is_held_by_captures(struct sg_core *core, int device)
{
    struct sg_stats stats;
    return sg_captures_runs_deferred() ||
           (sg_captures_active() && (atomic_load_explicit(&sg_captures_deferred, memory_order_relaxed) > 0 ||
                                      (sg_core_stats(core, device, &stats) && stats.value[SG_STAT_pending_bytes])));
}

/* Where all that is left waits for captures to end, so does this, for a bounded time: natively that memory would be
   free. `ends`: sg_captures_ends() before the core was asked, since one may have ended after that. */
static CUresult malloc_after_captures(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag,
    unsigned ends, CUdeviceptr *ret)
{
    enum { TRIES = 16 }; /* others may go on capturing for ever */
    uint64_t left_ns = (uint64_t)(sg_process_conf()->wait_limit * 1e9);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < TRIES && result == CUDA_ERROR_OUT_OF_MEMORY; i++) {
        bool held = is_held_by_captures(core, device) && sg_captures_await(&left_ns);
        if (!held && sg_captures_ends() == ends)
            break;
        ends = sg_captures_ends();
        sg_memory_settle(core);
        result = sg_core_malloc(core, device, bytes, tag, ret);
    }
    return result;
}

/* What is freed and kept for a graph is there once that is gone, and its last launch is done. */
static CUresult malloc_after_graphs(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret)
{
    if (!sg_graphs_retain_freed() || sg_captures_active())
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_memory_settle(core);
    CUresult result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_memory_settle_launches(core))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    return result;
}

CUresult sg_memory_not_served(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, unsigned ends,
    CUresult result, CUdeviceptr *ret)
{
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_alias_probe_gave_back(device))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = malloc_after_graphs(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = malloc_after_captures(core, device, bytes, tag, ends, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_outside_waited_for_pools(tag->context))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_core_left_pages(core, device) && sg_made_room_by(core))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_trim_ask_others(sg_process_driver(), device, bytes))
        result = sg_core_malloc(core, device, bytes, tag, ret);
    if (result == CUDA_ERROR_NOT_SUPPORTED ||
        (result == CUDA_ERROR_OUT_OF_MEMORY && !is_limited(core, device))) {
        CUresult first = result;
        result = pass_through_idle(core, device, bytes, ret);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && first != result && sg_trim_ask_others(sg_process_driver(), device, bytes))
            result = pass_through(core, device, bytes, ret);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && first == result)
            sg_refusals_add(core, device, bytes);
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        sg_refusals_add(core, device, bytes);
    }
    if (sg_driver_is_sticky(result))
        sg_core_disable(core);
    return result;
}

CUresult sg_memory_alloc(struct sg_core *core, size_t bytes, const struct sg_request *request, CUdeviceptr *ret)
{
    struct sg_tag tag;
    int device;
    if (!ret || !bytes || describe(core, request, &tag, &device) != CUDA_SUCCESS)
        return sg_real()->cuMemAlloc_v2(ret, bytes);
    if (sg_contexts_green(tag.context)) /* memory is the primary context's */
        tag.context = sg_contexts_primary_of(device);
    CUstreamCaptureMode mode;
    bool capturing = sg_captures_active();
    if (capturing && request->torch && request->has_stream &&
        sg_graphs_reuse(sg_stream_named(request->stream, false), bytes, ret)) {
        if (sg_annotate_on)
            sg_annotate_given(*ret, bytes);
        return CUDA_SUCCESS;
    }
    bool relaxed = capturing && sg_capture_mode_relax(&mode);
    sg_memory_run_deferred(core);
    sg_recorder_device(sg_process_driver(), device);
    sg_trim_use(device);
    unsigned ends = sg_captures_ends();
    CUresult result = sg_core_malloc(core, device, bytes, &tag, ret);
    if (result != CUDA_SUCCESS)
        result = sg_memory_not_served(core, device, bytes, &tag, ends, result, ret);
    if (result == CUDA_SUCCESS)
        sg_refusals_note_served(bytes);
    if (relaxed)
        sg_capture_mode_restore(&mode);
    if (sg_annotate_on && result == CUDA_SUCCESS && sg_core_owns(core, *ret))
        sg_annotate_given(*ret, bytes);
    if (capturing && result == CUDA_SUCCESS)
        adopt(core, request, *ret);
    sg_recorder_tick(core, device);
    return result;
}

/* What the driver answers to a free while a capture is active. It judges by the mode of this thread and of the captures.
   A call that it forbids ruins those. Asked by a small allocation of its own; where it allows that, freeing it
   waits as freeing the program's block would. */
static CUresult forbidden(void)
{
    const struct sg_real *real = sg_real();
    CUdeviceptr probe;
    CUresult result = real->cuMemAlloc_v2(&probe, 1);
    if (result == CUDA_SUCCESS)
        real->cuMemFree_v2(probe);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : result;
}

/* In a capture a free that is a step of the captured stream can only be of memory of a graph: other memory is refused,
   and the capture is ruined as by any call that it forbids. */
static CUresult no_node(CUstream stream)
{
    CUresult result = sg_real()->cuStreamQuery(stream);
    return result == CUDA_SUCCESS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

/* A free while a capture is active. By the order of streams it is a number, and the driver is not asked. */
static CUresult free_captured(struct sg_core *core, CUdeviceptr address, const struct sg_request *request,
    bool *ret_done)
{
    bool ordered = free_mode(request) != SG_FREE_SYNC_STRICT;
    CUstream stream = request->stream;
    *ret_done = true;
    if (request->stream_order && !request->driver_allowed && !request->was_deferred &&
        sg_captures_capturing(stream, false))
        return no_node(stream);
    CUresult result = ordered || request->driver_allowed ? CUDA_SUCCESS : forbidden();
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
    *ret_done = free_mode(request) != SG_FREE_SYNC_STREAM;
    return *ret_done ? sg_captures_defer_free(core, address, request) : CUDA_SUCCESS;
}

/* Only the start of a live block may be put off. */
static bool is_block(struct sg_core *core, CUdeviceptr address)
{
    struct sg_block_info block;
    return sg_core_block(core, address, &block) == CUDA_SUCCESS && block.base == address;
}

/* Waits for a step of a stream that is the next one now. That the stream has no work left would not tell as much: a
   blocking one comes after the legacy stream's work by its next step only. */
static CUresult wait_for_step(CUstream stream)
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

/* What a free that is a step of a stream waits for: that stream alone where it can be followed, because all other use
   of the block has to come before that step. Source: the text of cuMemFreeAsync in cuda.h. Where no event can be had
   either, the host waits, for that stream and not for work elsewhere that may never end. */
static void order_by(struct sg_core *core, CUdeviceptr address, const struct sg_request *request, struct sg_tag *tag)
{
    struct sg_block_info block;
    struct sg_tracked_stream tracked;
    if (sg_core_block(core, address, &block) != CUDA_SUCCESS || block.base != address)
        return; /* the core refuses it */
    bool now = !request->driver_allowed && !request->was_deferred;
    if (tag->sync == SG_FREE_SYNC_EVENT) {
        if (now && !sg_process_driver()->ctx_record_event && !sg_captures_any() &&
            wait_for_step(request->stream) == CUDA_SUCCESS)
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

/* Of a block that belongs to a graph: frees by callers who expect a wait still have one. */
static CUresult free_kept(struct sg_core *core, CUdeviceptr address, const struct sg_request *request, bool *ret_done)
{
    bool waits = free_mode(request) == SG_FREE_SYNC_STRICT, all = false;
    CUcontext context = NULL;
    CUresult result = waits ? sg_process_driver()->ctx_get_current(&context) : CUDA_SUCCESS;
    if (waits && result == CUDA_SUCCESS)
        result = sg_core_wait(core, address, context, &all);
    *ret_done = result != CUDA_SUCCESS;
    if (*ret_done)
        return result;
    enum sg_graphs_answer answer = sg_graphs_retain(address, request, all);
    *ret_done = answer != SG_GRAPHS_FREE;
    return answer == SG_GRAPHS_RETAINED_BEFORE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* The core's free, as `free_mode` it takes effect. What can't be had by the order of streams is an event over all work;
   and where no event is to be had it is a wait, which needs none. */
static CUresult free_by_core(struct sg_core *core, CUdeviceptr address, const struct sg_request *request,
    enum sg_free_sync sync)
{
    struct sg_tag tag;
    int device;
    CUresult result = describe(core, request, &tag, &device);
    if (result != CUDA_SUCCESS)
        return result;
    tag.sync = sync;
    if (request->stream_order && tag.sync != SG_FREE_SYNC_COMPLETE)
        order_by(core, address, request, &tag);
    result = sg_core_free(core, address, &tag);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE &&
        result != CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && tag.sync != SG_FREE_SYNC_STRICT) {
        tag.sync = SG_FREE_SYNC_STRICT;
        result = sg_core_free(core, address, &tag);
    }
    sg_recorder_tick(core, device);
    return result;
}

/* First, a block that belongs to a capture or a graph is put off. The core frees the others. Last comes the answer to the
   program where a capture has begun meanwhile, or where the driver is gone. */
CUresult sg_memory_free(struct sg_core *core, CUdeviceptr address, const struct sg_request *request)
{
    struct sg_tag tag;
    int device;
    bool done = false, capturing = sg_captures_active(), wrong = capturing && !is_block(core, address);
    CUresult result = CUDA_SUCCESS;
    if (sg_annotate_on && !request->was_deferred && !capturing && describe(core, request, &tag, &device) == CUDA_SUCCESS)
        sg_annotate_freed(core, address); /* not where nothing can be freed, as in a function of the host */
    if (capturing && !wrong)
        result = free_captured(core, address, request, &done);
    else if (sg_graphs_retain_any() && !request->was_deferred && is_block(core, address))
        result = free_kept(core, address, request, &done);
    if (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && !capturing) /* one has begun, and nothing was asked yet */
        result = free_captured(core, address, request, &done);
    if (done)
        return result;
    /* No block begins there: the core is to say so without a wait, which the captures would forbid. */
    result = free_by_core(core, address, request, wrong ? SG_FREE_SYNC_EVENT : free_mode(request));
    bool begun = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a capture has, since it was looked for */
    if (result == CUDA_ERROR_NOT_FOUND || (begun && !is_block(core, address)))
        return CUDA_ERROR_INVALID_VALUE; /* it was ours when the caller asked, and has gone with its context since */
    if (begun)
        return free_mode(request) == SG_FREE_SYNC_STRICT ? free_captured(core, address, request, &done)
                                                         : sg_captures_defer_free(core, address, request);
    if (!sg_driver_is_sticky(result))
        return result;
    sg_core_disable(core);
    return request->torch || result == CUDA_ERROR_DEINITIALIZED ? CUDA_SUCCESS : result;
}

void sg_memory_wait_cross_device(void)
{
    bool cross_device = sg_contexts_devices() && atomic_load_explicit(&served_cross_device, memory_order_relaxed);
    struct sg_core *core = cross_device ? sg_enter() : NULL;
    if (!core)
        return;
    (void)sg_core_wait_for_all(core); /* what has failed, the driver's free says too */
    sg_leave();
}

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
