/* Stream captures: begun and ended. A begin is counted before the driver is asked, and taken back if the driver
   refuses. */
#include <stdbool.h>
#include <stddef.h>

#include "hooks/capture_end.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/deferred_frees.h"
#include "track/captures.h"
#include "track/default_streams.h"
#include "track/streams.h"
#include "track/torch_mode.h"

/* A begin counts before the driver is asked: between its answer and ours other threads must see it. Returns the joins
   until then. */
static unsigned capture_begins(void)
{
    sg_memory_fence(/* capture */ true); /* once it has begun, no event of ours is recorded any more */
    sg_default_streams_settle();
    return sg_captures_begin() - !sg_following(); /* else joins are not seen: never equal again */
}

/* After the driver's answer to a begin. The current context is noted with the capture, so that its end drops the
   capture. A begin that the driver refused may have been the only one that counted: frees that were put off for it are
   made now. */
static CUresult capture_begun(CUresult result, unsigned joins, CUstream stream, bool per_thread)
{
    const struct sg_driver *driver = sg_process_driver();
    CUcontext context = NULL;
    sg_captures_joined();
    if (driver && driver->ctx_get_current)
        (void)driver->ctx_get_current(&context);
    if (result == CUDA_SUCCESS)
        sg_captures_list(stream, per_thread, context, joins);
    else if (sg_captures_not_begun())
        sg_capture_run_deferred();
    return result;
}

/* These answers leave a capture going on. Source: the texts of CUresult in cuda.h. */
static CUresult capture_end_answered(CUresult result, CUstream stream, bool per_thread)
{
    if (result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD && result != CUDA_ERROR_ILLEGAL_STATE &&
        result != CUDA_ERROR_INVALID_HANDLE)
        sg_capture_ended(stream, per_thread);
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginCapture(stream), joins, stream, false);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginCapture_ptsz(stream), joins, stream, true);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    sg_torch_captures(mode);
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginCapture_v2(stream, mode), joins, stream, false);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    sg_torch_captures(mode);
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginCapture_v2_ptsz(stream, mode), joins, stream, true);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode), joins,
        stream, false);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
    const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginCaptureToGraph_ptsz(stream, graph, nodes, edges, count, mode), joins,
        stream, true);
}

CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void *callback,
    void *user)
{
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginRecaptureToGraph(stream, mode, graph, callback, user), joins, stream,
        false);
}

CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void *callback,
    void *user)
{
    unsigned joins = capture_begins();
    return capture_begun(sg_real()->cuStreamBeginRecaptureToGraph_ptsz(stream, mode, graph, callback, user), joins,
        stream, true);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret)
{
    return capture_end_answered(sg_real()->cuStreamEndCapture(stream, ret), stream, false);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *ret)
{
    return capture_end_answered(sg_real()->cuStreamEndCapture_ptsz(stream, ret), stream, true);
}
