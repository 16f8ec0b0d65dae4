/* What this device does not have, and says so as a device without it does: multicast objects (they need a switch),
   green contexts. Frameworks look the functions up and call them only where the device has the feature. */
#include "sim.h"

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
    SIM_ENTER(cuMulticastCreate);
    (void)handle, (void)prop;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
    SIM_ENTER(cuMulticastAddDevice);
    (void)handle, (void)device;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
    size_t memory_offset, size_t size, unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindMem);
    (void)handle, (void)offset, (void)memory, (void)memory_offset, (void)size, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t size,
    unsigned long long flags)
{
    SIM_ENTER(cuMulticastBindAddr);
    (void)handle, (void)offset, (void)address, (void)size, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size)
{
    SIM_ENTER(cuMulticastUnbind);
    (void)handle, (void)device, (void)offset, (void)size;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
    CUmulticastGranularity_flags option)
{
    SIM_ENTER(cuMulticastGetGranularity);
    (void)granularity, (void)prop, (void)option;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device, unsigned int flags)
{
    SIM_ENTER(cuGreenCtxCreate);
    (void)green, (void)description, (void)device, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    SIM_ENTER(cuGreenCtxDestroy);
    (void)green;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags, int priority)
{
    SIM_ENTER(cuGreenCtxStreamCreate);
    (void)stream, (void)green, (void)flags, (void)priority;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    SIM_ENTER(cuCtxFromGreenCtx);
    (void)context, (void)green;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER(cuDeviceGetDevResource);
    (void)device, (void)resource, (void)type;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
    CUdevResource *remaining, unsigned int flags, unsigned int min_count)
{
    SIM_ENTER(cuDevSmResourceSplitByCount);
    (void)result, (void)groups, (void)input, (void)remaining, (void)flags, (void)min_count;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources, unsigned int count)
{
    SIM_ENTER(cuDevResourceGenerateDesc);
    (void)description, (void)resources, (void)count;
    return CUDA_ERROR_NOT_SUPPORTED;
}
