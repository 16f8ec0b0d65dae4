/* Pages: what is asked of the driver for them, of which kind they are, and whether they can come and go at all. */
#include <string.h>

#include "remap/mapping_limit.h"

static CUmemAllocationProp page_prop(const struct sg_device *device)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device->ordinal;
    if (device->page_kind & SG_PAGES_EXPORTABLE)
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.allocFlags.gpuDirectRDMACapable = device->page_kind & SG_PAGES_RDMA ? 1 : 0;
    return prop;
}

CUresult sg_device_create_page(struct sg_device *device, size_t bytes, CUmemGenericAllocationHandle *ret)
{
    CUmemAllocationProp prop = page_prop(device);
    CUresult result = sg_core_driver(device->core)->create(ret, bytes, &prop, 0);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : sg_device_answered(device, result);
}

/* Whether a call that was answered so may be answered otherwise. */
static bool is_worth_another(CUresult result)
{
    return result != CUDA_SUCCESS && !sg_driver_is_sticky(result);
}

CUresult sg_device_unmap(struct sg_device *device, CUdeviceptr address, size_t bytes)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 2 && is_worth_another(result); i++)
        result = sg_device_answered(device, sg_core_driver(device->core)->unmap(address, bytes));
    return result;
}

CUresult sg_device_release_page(struct sg_device *device, CUmemGenericAllocationHandle handle)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 2 && is_worth_another(result); i++)
        result = sg_device_answered(device, sg_core_driver(device->core)->release(handle));
    return result;
}

CUresult sg_device_set_access(struct sg_device *device, CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access[SG_DEVICES_MAX];
    size_t count = 0;
    memset(access, 0, sizeof access);
    for (int ordinal = 0; ordinal < SG_DEVICES_MAX; ordinal++) {
        if (ordinal != device->ordinal && !(device->peers >> ordinal & 1))
            continue;
        access[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[count].location.id = ordinal;
        access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return sg_device_answered(device, sg_core_driver(device->core)->set_access(address, bytes, access, count));
}

/* Maps and unmaps one granule, so that a device on which this cannot work is known before anything depends on it. */
static bool probe(struct sg_device *device)
{
    const struct sg_driver *driver = sg_core_driver(device->core);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bool works = false;
    if (sg_device_answered(device, driver->address_reserve(&address, device->granularity, 0, 0, 0)) != CUDA_SUCCESS)
        return false;
    CUresult created = sg_device_create_page(device, device->granularity, &handle);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) {
        works = true; /* a full device says nothing about what it can do */
    } else if (created == CUDA_SUCCESS) {
        if (sg_device_answered(device, driver->map(address, device->granularity, 0, handle, 0)) == CUDA_SUCCESS) {
            works = sg_device_set_access(device, address, device->granularity) == CUDA_SUCCESS;
            works = sg_device_unmap(device, address, device->granularity) == CUDA_SUCCESS && works;
        }
        works = sg_device_release_page(device, handle) == CUDA_SUCCESS && works;
    }
    return driver->address_free(address, device->granularity) == CUDA_SUCCESS && works;
}

static bool has(const struct sg_device *device, CUdevice_attribute attribute)
{
    int value = 0;
    return sg_core_driver(device->core)->device_attribute(&value, attribute, device->ordinal) == CUDA_SUCCESS && value;
}

/* Whether pages of this kind can come and go, with the granularity noted. */
static bool can_expand(struct sg_device *device, uint8_t kind)
{
    size_t granularity = 0;
    device->page_kind = kind;
    CUmemAllocationProp prop = page_prop(device);
    if (sg_core_driver(device->core)->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS ||
        granularity < SG_UNIT)
        return false;
    device->granularity = granularity;
    sg_mappings_size_pages(device);
    if (probe(device))
        return true;
    device->granularity = 0;
    return false;
}

/* Communication libraries take memory that is mapped by pages for exportable, and register it with network cards.
   NCCL ends where that fails; for cuMemAlloc's memory it would go without. */
bool sg_device_find_pages(struct sg_device *device)
{
    const struct sg_core *core = device->core;
    if (!core->conf.expandable_segments || core->conf.ipc == SG_IPC_ALWAYS || !sg_driver_has_vmm(core->driver) ||
        !has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return false;
    uint8_t offered = 0;
    if (!core->plain_pages && has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        offered |= SG_PAGES_EXPORTABLE;
    if (!core->plain_pages && has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        offered |= SG_PAGES_RDMA;
    uint8_t less = offered & SG_PAGES_RDMA;
    return (offered && can_expand(device, offered)) || (less && less != offered && can_expand(device, less)) ||
           can_expand(device, 0);
}
