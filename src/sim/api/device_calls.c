/* Entry points of devices: which there are, and what they say of themselves. */
#include <stdio.h>

#include "calls.h"
#include "device/device.h"
#include "device/peaks.h"
#include "model.h"
#include "space/host_pages.h"

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_ENTER(cuDeviceGet);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    SIM_ENTER(cuDeviceGetCount);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim.device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetName);
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "%s", sim_config_device_name(&sim.config));
    return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *ret, CUdevice ordinal)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_device *device = sim_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_config_uuid(&sim.config, device->index, (unsigned char *)ret->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *ret, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid);
    return device_uuid(ret, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret, CUdevice device)
{
    SIM_ENTER(cuDeviceGetUuid_v2);
    return device_uuid(ret, device);
}

/* A notion of Windows only. */
CUresult cuDeviceGetLuid(char *luid, unsigned int *node_mask, CUdevice device)
{
    SIM_ENTER(cuDeviceGetLuid);
    (void)luid, (void)node_mask, (void)device;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    SIM_ENTER(cuDeviceTotalMem_v2);
    struct sim_device *device = sim_device(ordinal);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_peaks_asked();
    *bytes = sim.config.bytes;
    return CUDA_SUCCESS;
}

/* Attributes that depend on the settings. All others come from the tables, and are 0 where those do not list them. */
static bool device_configured_attribute(CUdevice_attribute attribute, int ordinal, int *ret)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *ret = sim.config.vmm;
        return true;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *ret = sim.config.vmm && sim.config.posix_handles;
        return true;
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *ret = sim_host_pages_offered(CU_MEM_LOCATION_TYPE_HOST);
        return true;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *ret = sim_host_pages_offered(CU_MEM_LOCATION_TYPE_HOST_NUMA);
        return true;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        *ret = sim.config.vmm && sim.config.fabric != SIM_FABRIC_NONE;
        return true;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        *ret = sim.config.vmm && sim.config.rdma;
        return true;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        *ret = sim.config.ipc;
        return true;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        *ret = CU_MEM_HANDLE_TYPE_NONE;
        return true;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        *ret = sim.config.integrated;
        return true;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        *ret = sim_device(ordinal)->index + 1;
        return true;
    default:
        return false;
    }
}

static bool device_find_attribute(CUdevice_attribute attribute, int ordinal, int *ret)
{
    if (device_configured_attribute(attribute, ordinal, ret))
        return true;
    if (sim_model_attribute(sim.config.model, attribute, ret))
        return true;
    *ret = 0;
    return attribute >= 1 && attribute <= CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    SIM_ENTER_WITH(cuDeviceGetAttribute, value);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    int found;
    if (!device_find_attribute(attribute, device, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *value = found;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice device)
{
    SIM_ENTER(cuDeviceGetProperties);
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *prop = (CUdevprop){.maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = 1410000,
        .textureAlign = 512};
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    SIM_ENTER(cuDeviceComputeCapability);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    device_find_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device, major);
    device_find_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device, minor);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    SIM_ENTER(cuDeviceGetPCIBusId);
    if (!text || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)sim_device(device)->index + 1);
    return CUDA_SUCCESS;
}

/* [domain:]bus:device[.function], in hexadecimal. */
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    SIM_ENTER(cuDeviceGetByPCIBusId);
    if (!device || !text)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = function = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &slot, &function) < 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    const struct sim_device *found = bus && bus <= SIM_DEVICES_MAX ? sim_device_by_index((int)bus - 1) : NULL;
    if (domain || slot || function || !found)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = found->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice device)
{
    SIM_ENTER(cuDeviceGetExecAffinitySupport);
    (void)type;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = 0;
    return CUDA_SUCCESS;
}
