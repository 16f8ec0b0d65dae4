/* Entry points of contexts: the primary ones, those that are created, and the thread's current ones. */
#include "api/context_life.h"
#include "base/wrap.h"
#include "calls.h"
#include "device/context.h"
#include "device/device.h"
#include "memory/pool.h"
#include "streams/capture.h"
#include "streams/queue.h"

static unsigned context_schedule_bits(unsigned flags)
{
    return flags & CU_CTX_SCHED_MASK;
}

static bool context_flags_valid(unsigned flags)
{
    unsigned schedule = context_schedule_bits(flags);
    return !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) && !sg_has_several_bits(schedule);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = !device ? CUDA_ERROR_INVALID_DEVICE : context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_context_retain(device, context);
    sim_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = !device                ? CUDA_ERROR_INVALID_DEVICE
                      : device->primary_refs ? CUDA_SUCCESS
                                             : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        sim_context_release(device);
    sim_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

/* Whoever had taken it up still has to release it. Source: the text of cuDevicePrimaryCtxReset in cuda.h. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxReset_v2);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    if (device && sim_context_primary(device)) {
        sim_context_close(device->primary);
        device->primary_flags = 0;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = !device                      ? CUDA_ERROR_INVALID_DEVICE
                      : context_flags_valid(flags) ? CUDA_SUCCESS
                                                   : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        device->primary_flags = flags;
        if (device->primary)
            device->primary->flags = flags;
    }
    sim_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    SIM_ENTER_WITH(cuDevicePrimaryCtxGetState, ordinal, flags, active);
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    if (device) {
        *flags = device->primary_flags;
        *active = sim_context_primary(device) != NULL;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult context_create(CUcontext *ret, unsigned flags, CUdevice ordinal)
{
    if (!ret || !context_flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = CUDA_ERROR_INVALID_DEVICE;
    CUcontext context;
    if (device && sim_current.depth < SIM_CURRENT_MAX)
        result = sim_context_new(device, flags, false, &context);
    if (result == CUDA_SUCCESS) {
        context->users = 1;
        sim_current.at[sim_current.depth++] = context;
        *ret = context;
    }
    sim_unlock();
    return result;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v2);
    return context_create(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v3);
    return params || count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : context_create(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    SIM_ENTER_WITH(cuCtxCreate_v4, context, params);
    if (params && (params->numExecAffinityParams || params->cigParams))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return context_create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    SIM_ENTER_WITH(cuCtxDestroy_v2, context);
    sim_lock();
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    if (sim_handle_valid(context, SIM_KIND_CONTEXT) && !context->primary && !context->parent)
        result = context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS)
        sim_context_close(context);
    sim_unlock();
    if (result == CUDA_SUCCESS && sim_current.depth && sim_current.at[sim_current.depth - 1] == context)
        sim_current.depth--;
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

/* The current context gets one more user. A primary one has no such count. */
CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    SIM_ENTER(cuCtxAttach);
    if (!context || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext current;
    CUresult result = sim_context_current(&current);
    if (result == CUDA_SUCCESS && !current->users)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        current->users++;
        *context = current;
    }
    sim_unlock();
    return result;
}

/* Ends a context that has no user left. It must be current, as the reference says. */
CUresult cuCtxDetach(CUcontext context)
{
    SIM_ENTER(cuCtxDetach);
    bool last = false;
    sim_lock();
    bool current = sim_current.depth && sim_current.at[sim_current.depth - 1] == context &&
                   sim_handle_valid(context, SIM_KIND_CONTEXT);
    CUresult result = !current || (context->alive && !context->users) ? CUDA_ERROR_INVALID_CONTEXT
                      : context->alive                                ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS) {
        last = --context->users == 0;
        if (last)
            sim_context_close(context);
    }
    sim_unlock();
    if (last)
        sim_current.depth--;
    return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_ENTER(cuCtxPushCurrent_v2);
    sim_lock();
    bool valid = sim_handle_valid(context, SIM_KIND_CONTEXT);
    sim_unlock();
    if (!valid || sim_current.depth == SIM_CURRENT_MAX)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_current.at[sim_current.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_ENTER(cuCtxPopCurrent_v2);
    if (!sim_current.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_current.depth--;
    if (context)
        *context = sim_current.at[sim_current.depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

/* Replaces the top of the stack; NULL takes it away. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_ENTER(cuCtxSetCurrent);
    if (!context) {
        sim_current.depth -= sim_current.depth > 0;
        return CUDA_SUCCESS;
    }
    sim_lock();
    bool valid = sim_handle_valid(context, SIM_KIND_CONTEXT);
    sim_unlock();
    if (!valid)
        return CUDA_ERROR_INVALID_CONTEXT;
    sim_current.depth += sim_current.depth == 0;
    sim_current.at[sim_current.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_ENTER(cuCtxGetCurrent);
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = sim_current.depth ? sim_current.at[sim_current.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult context_device(CUcontext handle, CUdevice *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_get(handle, &context);
    if (result == CUDA_SUCCESS)
        *ret = context->device->ordinal;
    sim_unlock();
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER(cuCtxGetDevice);
    return context_device(NULL, device);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    SIM_ENTER(cuCtxGetDevice_v2);
    return context_device(context, device);
}

static CUresult context_synchronize(CUcontext handle)
{
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_get(handle, &context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_context(context);
    if (result == CUDA_SUCCESS)
        result = sim_wait_context(context);
    sim_pool_trim();
    sim_unlock();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(cuCtxSynchronize);
    return context_synchronize(NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    SIM_ENTER(cuCtxSynchronize_v2);
    return context_synchronize(context);
}
