/* Streams: made and destroyed. A stream's slots in the core outlive it until its work is complete. */
#include <stdbool.h>
#include <stddef.h>

#include "check/held.h"
#include "check/marks.h"
#include "check/state.h"
#include "hooks/capture_end.h"
#include "process/hooks.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/pool_streams.h"
#include "track/streams.h"

/* A new stream may have the handle of one whose end was not seen: what was remembered of that handle is wrong. */
static CUresult stream_created(CUresult result, const CUstream *ret)
{
    sg_marks_stream_made();
    if (result == CUDA_SUCCESS && ret && sg_following())
        sg_streams_new_handle(*ret);
    return result;
}

CUresult cuStreamCreate(CUstream *ret, unsigned flags)
{
    return stream_created(sg_real()->cuStreamCreate(ret, flags), ret);
}

CUresult cuStreamCreateWithPriority(CUstream *ret, unsigned flags, int priority)
{
    return stream_created(sg_real()->cuStreamCreateWithPriority(ret, flags, priority), ret);
}

CUresult cuGreenCtxStreamCreate(CUstream *ret, CUgreenCtx green, unsigned flags, int priority)
{
    CUcontext context;
    CUresult result = sg_real()->cuGreenCtxStreamCreate(ret, green, flags, priority);
    if (result == CUDA_SUCCESS && !sg_contexts_of_green(green))
        (void)cuCtxFromGreenCtx(&context, green); /* so that it is known for what it is */
    return stream_created(result, ret);
}

/* The driver has answered `result` to the destruction of a stream, which drops its capture. */
static CUresult stream_destroyed(CUresult result, CUstream stream)
{
    if (sg_captures_is_listed(stream) && result == CUDA_SUCCESS)
        sg_capture_ended(stream, false);
    return result;
}

/* The stream has no slot any more. Work that `check` is just giving it is waited for: it names the handle. */
static CUresult stream_destroy(CUresult (*real)(CUstream), CUstream stream)
{
    sg_streams_retire(stream);
    sg_pool_streams_gone(stream);
    if (!sg_check_on())
        return stream_destroyed(real(stream), stream);
    sg_marks_stream_gone(stream);
    sg_held_stream_gone(stream);
    sg_captures_joining();
    CUresult result = real(stream);
    sg_captures_joined();
    return stream_destroyed(result, stream);
}

CUresult cuStreamDestroy(CUstream stream)
{
    return stream_destroy(sg_real()->cuStreamDestroy, stream);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    return stream_destroy(sg_real()->cuStreamDestroy_v2, stream);
}
