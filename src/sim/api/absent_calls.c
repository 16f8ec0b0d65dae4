/* Entry points of multicast objects, which need a switch: this device has none, and says so as a device without them does.
   Frameworks look the functions up and call them only where the device has the feature. */
#include "calls.h"

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
