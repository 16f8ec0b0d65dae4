#include "device/context.h"

#include "device/device.h"

_Thread_local struct sim_current sim_current;

static CUresult context_error(CUcontext context)
{
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context->error;
}

CUresult sim_context_current(CUcontext *ret)
{
    if (!sim_current.depth || !sim_current.at[sim_current.depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = sim_current.at[sim_current.depth - 1];
    return context_error(*ret);
}

CUresult sim_context_get(CUcontext handle, CUcontext *ret)
{
    if (!handle)
        return sim_context_current(ret);
    if (!sim_handle_valid(handle, SIM_KIND_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = handle;
    return context_error(handle);
}

CUcontext sim_context_primary(struct sim_device *device)
{
    return device->primary && device->primary->alive ? device->primary : NULL;
}
