/* The choice of a mode, from the caller down to the option. It is made anew for each call that takes the slow path; the
   fast path keeps its outcome until sg_fast_path_epoch moves. */
#include "serve/free_mode.h"

#include "process/process.h"
#include "serve/callers.h"
#include "torch/torch_current.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/free_policy.h"
#include "track/memory_tags.h"
#include "track/streams.h"
#include "track/torch_mode.h"

/* True if the streams that could have seen a block are known: else a free covers whatever there is. */
static bool free_knows_users(void)
{
    return sg_streams_complete() && !sg_streams_untracked();
}

static bool free_records_all_users(const struct sg_request *request)
{
    return request->named || request->stream_order || (request->pluggable && sg_memory_torch_recorded());
}

/* Whom a free in stream order waits for. A tensor's own stream may have its memory at once, by PyTorch's rule. The core
   gives it to other streams of the same device too, which PyTorch never does. So each stream of this device that may
   have used the block counts as a user, recorded or not. */
static enum sg_user_rule free_user_rule(const struct sg_request *request)
{
    if (free_records_all_users(request))
        return SG_USERS_RECORDED;
    return request->torch && sg_memory_hooks_record_stream() ? SG_USERS_POSSIBLE_HERE : SG_USERS_POSSIBLE;
}

/* When a free takes effect, by who calls and how. Captures, graphs and streams that cannot be followed may change that
   later. Stream order needs the streams to be followed. Without that an event over the whole context, which is ordered
   after all its streams, takes its place. */
enum sg_free_sync sg_free_mode(const struct sg_request *request)
{
    enum sg_free_sync ordered = sg_following() && (free_records_all_users(request) || free_knows_users())
                                    ? SG_FREE_SYNC_STREAM
                                    : SG_FREE_SYNC_EVENT;
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
    return request->torch || request->named ? ordered
           : request->was_deferred          ? SG_FREE_SYNC_EVENT
                                            : SG_FREE_SYNC_STRICT;
}

/* PyTorch's direct tensors have its current stream; its cache's segments, and other modules, have none. */
struct sg_request sg_memory_origin(int caller)
{
    struct sg_request request = {0};
    if (caller == SG_CALLER_TORCH && sg_torch_direct() && !sg_self.torch_cached) {
        request.torch = true;
        request.has_stream = sg_torch_stream(&request.stream);
    }
    return request;
}

/* Mode, users and slot. A stream of another device has no slot here: its memory is then ordered after all work. */
struct sg_tag sg_memory_tag(struct sg_core *core, const struct sg_request *request, CUcontext context, int device)
{
    struct sg_tag tag = {
        .context = context,
        .stream = request->stream,
        .has_stream = request->has_stream,
        .torch = request->torch,
        .sync = sg_free_mode(request),
        .user_rule = free_user_rule(request),
        .missed_calls = !free_knows_users(),
        .site = sg_self.place.shown,
        .phase = sg_self.place.phase,
        .memory_tag = sg_memory_tags_now(core),
    };
    struct sg_tracked_stream tracked;
    if (sg_following() && request->has_stream)
        sg_streams_serve(device);
    /* A block that is given out in a capture is used at each launch of its graph, in any stream: earlier work on it
       must be complete. */
    if (sg_following() && request->has_stream && !request->stream_order &&
        !sg_captures_capturing(request->stream, false) && sg_streams_track(core, request->stream, false, &tracked) &&
        tracked.device == device)
        tag.slot = tracked.slot;
    return tag;
}

CUresult sg_memory_describe(struct sg_core *core, const struct sg_request *request, struct sg_tag *ret, int *ret_device)
{
    CUcontext context;
    CUresult result = sg_contexts_current(core, &context, ret_device);
    if (result != CUDA_SUCCESS)
        return result;
    *ret = sg_memory_tag(core, request, context, *ret_device);
    return CUDA_SUCCESS;
}
