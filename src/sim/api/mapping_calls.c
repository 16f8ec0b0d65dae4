/* Entry points of virtual memory management: reservations, physical allocations, mappings and rights. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/wrap.h"
#include "calls.h"
#include "device/card.h"
#include "device/device.h"
#include "hazard/hazard.h"
#include "space/host_pages.h"
#include "space/link.h"
#include "space/managed.h"
#include "space/mapping.h"
#include "space/memory_table.h"
#include "space/physical.h"
#include "streams/queue.h"

#define ENTER_VMM(symbol) \
    SIM_ENTER(symbol);    \
    if (!sim.config.vmm)  \
    return CUDA_ERROR_NOT_SUPPORTED

enum { PAGE = 4096 };

static bool vmm_is_granular(uint64_t value)
{
    return value % SIM_GRANULE == 0;
}

/* Pages in the host's memory have no handles for other processes. The only node has the number 0. The location "current
   node" is for ranges of managed memory alone. Source: CUDA Driver API, cuMemCreate() and CUmemLocationType. */
static CUresult vmm_check_host_prop(const CUmemAllocationProp *prop)
{
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_host_pages_offered(prop->location.type))
        return CUDA_ERROR_NOT_SUPPORTED;
    bool wrong = prop->requestedHandleTypes ||
                 (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop->location.id);
    return wrong ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static bool vmm_is_on_host(const CUmemAllocationProp *prop)
{
    return prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult vmm_check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type == CU_MEM_LOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (vmm_is_on_host(prop))
        return vmm_check_host_prop(prop);
    if (!sim_device(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned types = (unsigned)prop->requestedHandleTypes;
    const unsigned descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, fabric = CU_MEM_HANDLE_TYPE_FABRIC;
    if (types & ~(descriptor | fabric))
        return CUDA_ERROR_NOT_SUPPORTED;
    bool lacks = (types & descriptor && !sim.config.posix_handles) ||
                 (types & fabric && sim.config.fabric == SIM_FABRIC_NONE) ||
                 (prop->allocFlags.gpuDirectRDMACapable && !sim.config.rdma);
    return lacks ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
    CUmemAllocationGranularity_flags option)
{
    ENTER_VMM(cuMemGetAllocationGranularity);
    if (!granularity || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vmm_check_prop(prop);
    if (result == CUDA_SUCCESS)
        *granularity = vmm_is_on_host(prop) ? sim.config.host_granule : SIM_GRANULE;
    return result;
}

/* Address space of `size` bytes at a multiple of `alignment`; at `hint` if it is free. */
static uint64_t vmm_reserve(uint64_t size, uint64_t alignment, uint64_t hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (hint && hint % alignment == 0) {
        void *at = mmap(sim_pointer(hint), size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == sim_pointer(hint))
            return hint;
        if (at != MAP_FAILED)
            munmap(at, size);
    }
    void *raw = mmap(NULL, size + alignment, PROT_NONE, flags, -1, 0);
    if (raw == MAP_FAILED)
        return 0;
    uint64_t low = (uint64_t)(uintptr_t)raw, base = (low + alignment - 1) / alignment * alignment;
    if (base > low)
        munmap(raw, base - low);
    if (base < low + alignment)
        munmap(sim_pointer(base + size), low + alignment - base);
    return base;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    ENTER_VMM(cuMemAddressReserve);
    if (!address || !size || size % PAGE || hint % PAGE || sg_has_several_bits(alignment) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < SIM_GRANULE)
        alignment = SIM_GRANULE;
    if (size > (UINT64_C(1) << 47) || alignment > (UINT64_C(1) << 46))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t base = vmm_reserve(size, alignment, hint);
    if (base && sim_memory_enter(SIM_MEMORY_RESERVATION, base, size, NULL, NULL)) {
        *address = base;
        result = CUDA_SUCCESS;
    } else if (base) {
        munmap(sim_pointer(base), size);
    }
    sim_unlock();
    return result;
}

static struct sim_memory *vmm_reservation_around(uint64_t address, uint64_t size)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory || memory->kind != SIM_MEMORY_RESERVATION)
        return NULL;
    return size <= memory->range.base + memory->range.size - address ? memory : NULL;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    ENTER_VMM(cuMemAddressFree);
    sim_lock();
    struct sim_memory *memory = vmm_reservation_around(address, size);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (memory && memory->range.base == address && memory->range.size == size && !memory->mappings.root) {
        munmap(sim_pointer(address), size);
        sim_memory_forget(memory);
        result = CUDA_SUCCESS;
    }
    sim_unlock();
    return result;
}

/* Locked. Takes the bytes of an allocation, of a device or of the host's memory (NULL), and says where they lie. */
static bool vmm_take(struct sim_physical *physical, struct sim_device *device, uint64_t size)
{
    if (device ? !sim_device_charge(device, size) : !sim_host_pages_charge(size, &physical->fd, &physical->offset))
        return false;
    physical->device = device;
    physical->size = size;
    if (device) {
        physical->fd = device->fd;
        physical->offset = device->file_end;
        device->file_end += size;
    }
    return true;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    ENTER_VMM(cuMemCreate);
    if (!handle || !size || !vmm_is_granular(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vmm_check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (vmm_is_on_host(prop) && size % sim.config.host_granule)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC && sim.config.fabric == SIM_FABRIC_REFUSED)
        return CUDA_ERROR_NOT_PERMITTED;
    struct sim_physical *physical = calloc(1, sizeof *physical);
    sim_lock();
    if (physical && vmm_take(physical, vmm_is_on_host(prop) ? NULL : sim_device(prop->location.id), size)) {
        physical->handle_refs = 1;
        physical->prop = *prop;
        physical->prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
        sim_handle_add(&physical->handle, SIM_KIND_PHYSICAL);
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    } else {
        free(physical);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER_VMM(cuMemRelease);
    sim_lock();
    struct sim_physical *physical = sim_physical_of(handle);
    if (physical) {
        physical->handle_refs--;
        sim_physical_release_if_unused(physical);
    }
    sim_unlock();
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A page's second address and those after it have a view of the memory that is their own from the first write on. */
static int vmm_sharing(const struct sim_physical *physical)
{
    bool apart = physical->device ? sim.config.aliases_apart >> physical->device->index & 1 : sim.config.aliases_apart;
    return apart && physical->mappings ? MAP_PRIVATE : MAP_SHARED;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    ENTER_VMM(cuMemMap);
    if (!size || !vmm_is_granular(size) || !vmm_is_granular(address) || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_mapping *mapping = calloc(1, sizeof *mapping);
    sim_lock();
    struct sim_physical *physical = sim_physical_of(handle);
    struct sim_memory *reservation = vmm_reservation_around(address, size);
    CUresult result = CUDA_SUCCESS;
    if (!physical || size > physical->size || !reservation || sim_ranges_overlap(&reservation->mappings, address, size))
        result = CUDA_ERROR_INVALID_VALUE;
    /* A full table of mappings (vm.max_map_count) is the only way in which this is known to fail. */
    else if (!mapping || mmap(sim_pointer(address), size, PROT_NONE, vmm_sharing(physical) | MAP_FIXED | MAP_NORESERVE,
                             physical->fd, (off_t)physical->offset) == MAP_FAILED)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        mapping->range.base = address;
        mapping->range.size = size;
        mapping->physical = physical;
        mapping->buffer_id = ++sim.next_id;
        physical->mappings++;
        sim_link_begin(mapping);
        sim_ranges_insert(&reservation->mappings, &mapping->range);
    } else {
        free(mapping);
    }
    sim_unlock();
    return result;
}

static void vmm_wait_if_configured(void)
{
    for (int i = 0; sim.config.vmm_sync == SIM_VMM_SYNC_ALWAYS && i < sim.device_count; i++)
        sim_wait_device(&sim.devices[i]);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    ENTER_VMM(cuMemUnmap);
    if (!size || !vmm_is_granular(size) || !vmm_is_granular(address))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    vmm_wait_if_configured();
    struct sim_memory *reservation = vmm_reservation_around(address, size);
    struct sim_mapping *mapping = reservation ? sim_mapping_run(reservation, address, size, true) : NULL;
    CUresult result = mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (mapping && mmap(sim_pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                       -1, 0) == MAP_FAILED)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        sim_hazard_unmap(address, size);
    uint64_t handles = 0;
    for (; result == CUDA_SUCCESS && mapping; handles++) {
        struct sim_mapping *next =
            mapping->range.base + mapping->range.size < address + size ? sim_mapping_next(reservation, mapping) : NULL;
        sim_ranges_remove(&reservation->mappings, &mapping->range);
        mapping->physical->mappings--;
        sim_link_end(mapping);
        sim_physical_release_if_unused(mapping->physical);
        sim_mappings_give((unsigned)__builtin_popcount(mapping->on));
        free(mapping->granules);
        free(mapping);
        mapping = next;
    }
    sim_unlock();
    sim_count_handles(SIM_CALL_cuMemUnmap, handles);
    return result;
}

static CUresult vmm_check_access(const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return access[i].location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                                           : CUDA_ERROR_NOT_SUPPORTED;
        if (!sim_device(access[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* True if these devices reach the memory of all mappings up to `end`. Where devices don't reach each other,
   only its own one does. */
static bool vmm_is_reached(const struct sim_memory *reservation, struct sim_mapping *mapping, uint64_t end,
    const CUmemAccessDesc *access, size_t count)
{
    for (; mapping && !sim.config.peers && mapping->range.base < end; mapping = sim_mapping_next(reservation, mapping)) {
        const struct sim_device *device = mapping->physical->device;
        for (size_t i = 0; i < count && device; i++)
            if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].location.id != device->ordinal)
                return false;
    }
    return true;
}

/* Source of the error where a device can't be reached: NCCL's issue 1838. */
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
    ENTER_VMM(cuMemSetAccess);
    if (!size || !vmm_is_granular(size) || !vmm_is_granular(address) || !access || !count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vmm_check_access(access, count);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    vmm_wait_if_configured();
    struct sim_memory *reservation = vmm_reservation_around(address, size);
    struct sim_mapping *mapping = reservation ? sim_mapping_run(reservation, address, size, false) : NULL;
    if (!mapping)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!vmm_is_reached(reservation, mapping, address + size, access, count))
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    else if (!sim_mapping_charge(reservation, mapping, address, address + size, access, count))
        result = sim.config.mappings_code;
    uint64_t handles = 0; /* the driver maps each on each device */
    for (; result == CUDA_SUCCESS && mapping && mapping->range.base < address + size;
         mapping = sim_mapping_next(reservation, mapping)) {
        uint64_t end = mapping->range.base + mapping->range.size;
        uint64_t low = mapping->range.base > address ? mapping->range.base : address;
        handles += count;
        sim_link_access(mapping, access, count);
        if (!sim_mapping_set_rights(mapping, low, end < address + size ? end : address + size, access, count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && !sim_mapping_protect(reservation, address, address + size))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    sim_unlock();
    sim_count_handles(SIM_CALL_cuMemSetAccess, handles);
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    ENTER_VMM(cuMemGetAccess);
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(location->id))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_mapping *mapping = sim_mapping_find(address);
    if (mapping)
        *flags = sim_mapping_rights(mapping, address)[location->id];
    sim_unlock();
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    ENTER_VMM(cuMemGetAllocationPropertiesFromHandle);
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_physical *physical = sim_physical_of(handle);
    if (physical)
        *prop = physical->prop;
    sim_unlock();
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    ENTER_VMM(cuMemRetainAllocationHandle);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_mapping *mapping = sim_mapping_find((uint64_t)(uintptr_t)address);
    if (mapping) {
        mapping->physical->handle_refs++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)mapping->physical;
    }
    sim_unlock();
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
