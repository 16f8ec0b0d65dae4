#include "pages.h"

#include <string.h>

CUresult sg_pages_answered(struct sg_pages *pages, CUresult result)
{
    if (result != CUDA_SUCCESS) {
        __atomic_fetch_add(pages->errors, 1, __ATOMIC_RELAXED);
        pages->last_error = result;
    }
    return result;
}

/* The properties of pages of the present kind. Zero where nothing is said, padding included: the driver refuses other
   values in reserved bytes. */
static CUmemAllocationProp pages_prop(const struct sg_pages *pages)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = pages->ordinal;
    if (pages->kind & SG_PAGES_EXPORTABLE)
        prop.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (pages->kind & SG_PAGES_FABRIC)
        prop.requestedHandleTypes |= CU_MEM_HANDLE_TYPE_FABRIC;
    prop.allocFlags.gpuDirectRDMACapable = pages->kind & SG_PAGES_RDMA ? 1 : 0;
    return prop;
}

CUresult sg_pages_reserve(struct sg_pages *pages, uint64_t bytes, uint64_t alignment, CUdeviceptr *ret)
{
    return sg_pages_driver(pages)->address_reserve(ret, bytes, alignment, 0, 0);
}

/* Makes a page with these properties. */
static CUresult pages_create_with(struct sg_pages *pages, const CUmemAllocationProp *prop, uint64_t bytes,
    CUmemGenericAllocationHandle *ret)
{
    CUresult result = sg_pages_driver(pages)->create(ret, bytes, prop, 0);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? result : sg_pages_answered(pages, result);
}

CUresult sg_pages_create(struct sg_pages *pages, uint64_t bytes, CUmemGenericAllocationHandle *ret)
{
    CUmemAllocationProp prop = pages_prop(pages);
    return pages_create_with(pages, &prop, bytes, ret);
}

/* The properties of a page that is not the device's. It has no handles for others. */
static CUmemAllocationProp pages_far_prop(CUmemLocationType type, int id)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = type;
    prop.location.id = id;
    return prop;
}

/* Those of a page in the host's memory, whose number means nothing. Source: CUDA Driver API 13.0, CUmemLocationType. */
static CUmemAllocationProp pages_host_prop(void)
{
    return pages_far_prop(CU_MEM_LOCATION_TYPE_HOST, 0);
}

CUresult sg_pages_create_on_host(struct sg_pages *pages, uint64_t bytes, CUmemGenericAllocationHandle *ret)
{
    CUmemAllocationProp prop = pages_host_prop();
    return pages_create_with(pages, &prop, bytes, ret);
}

CUresult sg_pages_create_on_peer(struct sg_pages *pages, int peer, uint64_t bytes, CUmemGenericAllocationHandle *ret)
{
    CUmemAllocationProp prop = pages_far_prop(CU_MEM_LOCATION_TYPE_DEVICE, peer);
    return pages_create_with(pages, &prop, bytes, ret);
}

CUresult sg_pages_map(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle page)
{
    return sg_pages_answered(pages, sg_pages_driver(pages)->map(address, bytes, 0, page, 0));
}

CUresult sg_pages_set_access(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes, uint64_t peers)
{
    CUmemAccessDesc access[SG_PAGES_DEVICES];
    size_t count = 0;
    memset(access, 0, sizeof access);
    /* A description for each device with access, all in one call. */
    for (int ordinal = 0; ordinal < SG_PAGES_DEVICES; ordinal++) {
        if (ordinal != pages->ordinal && !(peers >> ordinal & 1))
            continue;
        access[count].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[count].location.id = ordinal;
        access[count++].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    return sg_pages_answered(pages, sg_pages_driver(pages)->set_access(address, bytes, access, count));
}

/* True if the call may be answered otherwise the next time. */
static bool result_is_worth_another(CUresult result)
{
    return result != CUDA_SUCCESS && !sg_driver_is_sticky(result);
}

CUresult sg_pages_unmap(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 2 && result_is_worth_another(result); i++)
        result = sg_pages_answered(pages, sg_pages_driver(pages)->unmap(address, bytes));
    return result;
}

CUresult sg_pages_release(struct sg_pages *pages, CUmemGenericAllocationHandle page)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 2 && result_is_worth_another(result); i++)
        result = sg_pages_answered(pages, sg_pages_driver(pages)->release(page));
    return result;
}

/* Maps and unmaps one granule with these properties, for the device and for `access`. So a device on which this
   cannot work is known before anything depends on it. */
static bool pages_map_a_granule(struct sg_pages *pages, const CUmemAllocationProp *prop, uint64_t granule,
    uint64_t access)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    bool works = false;
    if (sg_pages_answered(pages, sg_pages_reserve(pages, granule, 0, &address)) != CUDA_SUCCESS)
        return false;
    CUresult created = pages_create_with(pages, prop, granule, &handle);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) {
        works = true; /* a full device says nothing about what it can do */
    } else if (created == CUDA_SUCCESS) {
        if (sg_pages_map(pages, address, granule, handle) == CUDA_SUCCESS) {
            works = sg_pages_set_access(pages, address, granule, access) == CUDA_SUCCESS;
            works = sg_pages_unmap(pages, address, granule) == CUDA_SUCCESS && works;
        }
        works = sg_pages_release(pages, handle) == CUDA_SUCCESS && works;
    }
    return pages->driver->address_free(address, granule) == CUDA_SUCCESS && works;
}

/* True if the device has an attribute other than 0. */
static bool pages_offers(const struct sg_pages *pages, CUdevice_attribute attribute)
{
    int value = 0;
    return sg_pages_driver(pages)->device_attribute(&value, attribute, pages->ordinal) == CUDA_SUCCESS && value;
}

uint64_t sg_pages_host_granularity(struct sg_pages *pages)
{
    size_t granularity = 0;
    CUmemAllocationProp prop = pages_host_prop();
    if (!pages_offers(pages, CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        sg_pages_driver(pages)->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return 0;
    return granularity;
}

/* True if pages of this kind can come and go; sets `kind` and the granularity in bytes. */
static bool pages_can_make(struct sg_pages *pages, uint8_t kind, uint64_t *ret_granularity)
{
    size_t granularity = 0;
    pages->kind = kind;
    CUmemAllocationProp prop = pages_prop(pages);
    CUresult result = sg_pages_driver(pages)->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || granularity < SG_PAGES_GRANULE_LEAST ||
        !pages_map_a_granule(pages, &prop, granularity, 0))
        return false;
    *ret_granularity = granularity;
    return true;
}

bool sg_pages_try_peer(struct sg_pages *pages, int peer, uint64_t access, uint64_t *ret_granularity)
{
    size_t granularity = 0;
    CUmemAllocationProp prop = pages_far_prop(CU_MEM_LOCATION_TYPE_DEVICE, peer);
    CUresult result = sg_pages_driver(pages)->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (sg_pages_answered(pages, result) != CUDA_SUCCESS || !granularity || granularity & (granularity - 1) ||
        !pages_map_a_granule(pages, &prop, granularity, access))
        return false;
    *ret_granularity = granularity;
    return true;
}

/* Communication libraries take memory that is mapped by pages for exportable, and register it with network cards.
   NCCL ends where that fails; for cuMemAlloc's memory it would go without. Over NVLink between machines it exports by
   fabric handles (nccl#2332). Those are refused where the service that grants them (IMEX) does not run, which no
   attribute says; so pages without them are tried next.

   Example: a device that offers all three. 2 MiB with descriptor, fabric handle and network are created: 800. Without
   a fabric handle they are created, mapped, taken back. All pages are of that kind. */
bool sg_pages_probe(struct sg_pages *pages, bool plain, uint64_t *ret_granularity)
{
    if (!sg_driver_has_vmm(pages->driver) || !pages_offers(pages, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        return false;
    uint8_t offered = 0;
    if (!plain && pages_offers(pages, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        offered |= SG_PAGES_EXPORTABLE;
    if (!plain && pages_offers(pages, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
        offered |= SG_PAGES_RDMA;
    if (!plain && pages_offers(pages, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED))
        offered |= SG_PAGES_FABRIC;
    /* From the best kind down to the plain one; a kind that is equal to the one before is not tried again. */
    const uint8_t kinds[] = {offered, offered & (SG_PAGES_EXPORTABLE | SG_PAGES_RDMA), offered & SG_PAGES_RDMA, 0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((i == 0 || kinds[i] != kinds[i - 1]) && pages_can_make(pages, kinds[i], ret_granularity))
            return true;
    return false;
}
