/* Entry points of streams. */
#include "calls.h"
#include "device/context.h"
#include "graphs/captured_work.h"
#include "hazard/order.h"
#include "memory/pool.h"
#include "space/memory_table.h"
#include "streams/capture.h"
#include "streams/executor.h"
#include "streams/queue.h"
#include "streams/stream.h"
#include "streams/work.h"
#include "work/host_call.h"
#include "work/program_stream.h"
#include "work/submit.h"

/* Declares the …_ptsz form of a function whose parameter `stream` is then the thread's own where it is NULL. */
#define WITH_PER_THREAD(symbol, parameters, ...) \
    CUresult symbol##_ptsz parameters            \
    {                                            \
        stream = sim_per_thread(stream);         \
        return symbol(__VA_ARGS__);              \
    }

static CUresult stream_create(CUstream *ret, unsigned flags, int priority)
{
    if (!ret || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    /* Priorities outside the range are clamped. */
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_stream_new(context, SIM_STREAM_CREATED, flags, priority, ret);
    sim_unlock();
    return result;
}

CUresult cuStreamCreate(CUstream *handle, unsigned int flags)
{
    SIM_ENTER_WITH(cuStreamCreate, handle, flags);
    return stream_create(handle, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned int flags, int priority)
{
    SIM_ENTER_WITH(cuStreamCreateWithPriority, handle, flags);
    return stream_create(handle, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    SIM_ENTER_WITH(cuStreamDestroy_v2, stream);
    sim_lock();
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    if (sim_handle_valid(stream, SIM_KIND_STREAM) && stream->kind == SIM_STREAM_CREATED) {
        result = stream->context->parent ? stream->context->error : CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            sim_stream_end(stream, false);
    }
    sim_unlock();
    return result;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

#define WITH_STREAM(handle) \
    sim_lock();             \
    CUstream stream_;       \
    CUresult result = sim_stream_get((handle), &stream_)

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    SIM_ENTER_WITH(cuStreamGetPriority, stream, priority);
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        *priority = stream_->priority;
    sim_unlock();
    return result;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    SIM_ENTER_WITH(cuStreamGetFlags, stream, flags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        *flags = stream_->flags;
    sim_unlock();
    return result;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    SIM_ENTER_WITH(cuStreamGetId, stream, id);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        *id = stream_->id;
    sim_unlock();
    return result;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    SIM_ENTER_WITH(cuStreamGetCtx, stream, context);
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        *context = stream_->context;
    sim_unlock();
    return result;
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    SIM_ENTER_WITH(cuStreamGetCtx_v2, stream, context, green);
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS && stream_->kind == SIM_STREAM_PER_THREAD && stream_->context->green)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        *context = sim_context_root(stream_->context);
    if (result == CUDA_SUCCESS && green)
        *green = stream_->context->green;
    sim_unlock();
    return result;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green)
{
    SIM_ENTER_WITH(cuStreamGetGreenCtx, stream, green);
    if (!green)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        *green = stream_->context->green;
    sim_unlock();
    return result;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    SIM_ENTER(cuStreamGetDevice);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        *device = stream_->context->device->ordinal;
    sim_unlock();
    return result;
}

/* CUDA_SUCCESS where the host may ask, or wait, for the stream's work. */
static CUresult stream_may_ask(CUstream stream)
{
    if (sim_capturing(stream))
        return sim_capture_unsupported(stream);
    CUresult result = sim_capture_legacy(stream);
    return result == CUDA_SUCCESS ? sim_capture_forbids() : result;
}

CUresult cuStreamQuery(CUstream stream)
{
    SIM_ENTER_WITH(cuStreamQuery, stream);
    sim_lock();
    sim_schedule_step();
    CUstream stream_;
    CUresult result = sim_stream_get(stream, &stream_);
    if (result == CUDA_SUCCESS)
        result = stream_may_ask(stream_);
    if (result == CUDA_SUCCESS) {
        bool idle = sim_stream_idle(stream_);
        /* The legacy stream is done when what it waits for is. */
        for (CUstream s = stream_->context->streams; s && stream_->kind == SIM_STREAM_LEGACY; s = s->next)
            idle &= s->flags & CU_STREAM_NON_BLOCKING || sim_stream_idle(s);
        result = idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
        struct sim_clock seen = {0};
        if (idle)
            sim_order_stream(stream_, &seen);
        sim_order_host_after(&seen);
        sim_clock_clear(&seen);
    }
    sim_schedule_polled(stream, result != CUDA_ERROR_NOT_READY);
    sim_unlock();
    return result;
}

/* Synchronising the legacy stream also waits for the blocking streams' work, as a piece of work in it would. */
static CUresult stream_synchronize(CUstream stream)
{
    bool busy = !sim_stream_idle(stream);
    for (CUstream s = stream->context->streams; s && stream->kind == SIM_STREAM_LEGACY; s = s->next)
        busy |= !(s->flags & CU_STREAM_NON_BLOCKING) && !sim_stream_idle(s);
    struct sim_clock seen = {0};
    sim_order_stream(stream, &seen);
    CUresult result = stream->context->error;
    if (busy && stream->kind != SIM_STREAM_LEGACY) {
        result = sim_wait_stream(stream);
    } else if (busy) {
        struct sim_work *work = sim_work_new(0, NULL, NULL);
        result = work ? sim_submit_and_wait(stream, work) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_order_host_after(&seen);
    sim_clock_clear(&seen);
    return result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    SIM_ENTER_WITH(cuStreamSynchronize, stream);
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS)
        result = stream_may_ask(stream_);
    if (result == CUDA_SUCCESS)
        result = stream_synchronize(stream_);
    sim_pool_trim();
    sim_unlock();
    return result;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user_data)
{
    SIM_ENTER_WITH(cuLaunchHostFunc, stream, fn);
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_host_call(stream, (struct sim_host_call){.function = fn, .user_data = user_data});
}

/* How a thread waits for the function is its own affair (CUhostTaskSyncMode). */
CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn fn, void *user_data, unsigned int sync_mode)
{
    (void)sync_mode;
    return cuLaunchHostFunc(stream, fn, user_data);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags)
{
    SIM_ENTER_WITH(cuStreamAddCallback, stream, callback, user_data, flags);
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_host_call(stream, (struct sim_host_call){.callback = callback, .handle = stream, .user_data = user_data});
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    SIM_ENTER_WITH(cuStreamAttachMemAsync, stream);
    (void)length, (void)flags;
    WITH_STREAM(stream);
    struct sim_memory *memory = sim_memory_find(address);
    if (result == CUDA_SUCCESS && (!memory || memory->kind != SIM_MEMORY_MANAGED))
        result = CUDA_ERROR_INVALID_VALUE;
    sim_unlock();
    return result;
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    SIM_ENTER_WITH(cuStreamCopyAttributes, dst);
    WITH_STREAM(dst);
    CUstream other;
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(src, &other);
    if (result == CUDA_SUCCESS)
        stream_->priority = other->priority;
    sim_unlock();
    return result;
}

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value)
{
    SIM_ENTER_WITH(cuStreamGetAttribute, stream);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS) {
        *value = (CUstreamAttrValue){.pad = {0}};
        if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            value->priority = stream_->priority;
        else if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
            value->syncPolicy = CU_SYNC_POLICY_AUTO;
    }
    sim_unlock();
    return result;
}

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    SIM_ENTER_WITH(cuStreamSetAttribute, stream);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_STREAM(stream);
    if (result == CUDA_SUCCESS && attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        stream_->priority = value->priority;
    sim_unlock();
    return result;
}

WITH_PER_THREAD(cuStreamGetPriority, (CUstream stream, int *priority), stream, priority)
WITH_PER_THREAD(cuStreamGetFlags, (CUstream stream, unsigned int *flags), stream, flags)
WITH_PER_THREAD(cuStreamGetId, (CUstream stream, unsigned long long *id), stream, id)
WITH_PER_THREAD(cuStreamGetCtx, (CUstream stream, CUcontext *context), stream, context)
WITH_PER_THREAD(cuStreamGetCtx_v2, (CUstream stream, CUcontext *context, CUgreenCtx *green), stream, context, green)
WITH_PER_THREAD(cuStreamGetDevice, (CUstream stream, CUdevice *device), stream, device)
WITH_PER_THREAD(cuStreamQuery, (CUstream stream), stream)
WITH_PER_THREAD(cuStreamSynchronize, (CUstream stream), stream)
WITH_PER_THREAD(cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *user_data), stream, fn, user_data)

WITH_PER_THREAD(cuLaunchHostFunc_v2, (CUstream stream, CUhostFn fn, void *user_data, unsigned int sync_mode), stream,
    fn, user_data, sync_mode)

WITH_PER_THREAD(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *user_data, unsigned int flags),
    stream, callback, user_data, flags)

WITH_PER_THREAD(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr address, size_t length, unsigned int flags),
    stream, address, length, flags)

WITH_PER_THREAD(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value), stream,
    attribute, value)

WITH_PER_THREAD(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value),
    stream, attribute, value)

CUresult cuStreamCopyAttributes_ptsz(CUstream dst, CUstream src)
{
    return cuStreamCopyAttributes(sim_per_thread(dst), sim_per_thread(src));
}
