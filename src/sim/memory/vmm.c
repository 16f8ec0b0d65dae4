#include "hazard/hazard.h"
#include "rest.h"
#include "memory/vmm.h"
#include "wrap.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENTER_VMM(symbol)                 \
    SIM_ENTER(symbol);                    \
    if (!sim.config.vmm)                  \
        return CUDA_ERROR_NOT_SUPPORTED

enum { PAGE = 4096 };

static bool granular(uint64_t value)
{
    return value % SIM_GRANULE == 0;
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static struct sim_mapping *mapping_of(struct sim_range *range)
{
    return range ? SIM_CONTAINER(range, struct sim_mapping, range) : NULL;
}

static struct sim_mapping *next_mapping(const struct sim_memory *reservation, const struct sim_mapping *mapping)
{
    uint64_t end = mapping->range.base + mapping->range.size;
    return mapping_of(sim_ranges_find(&reservation->mappings, end));
}

struct sim_mapping *sim_mapping_find(uint64_t address)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory || memory->kind != SIM_MEMORY_RESERVATION)
        return NULL;
    return mapping_of(sim_ranges_find(&memory->mappings, address));
}

struct sim_device *sim_device_at(uint64_t address)
{
    struct sim_memory *memory = sim_memory_find(address);
    struct sim_mapping *mapping = sim_mapping_find(address);
    if (mapping)
        return mapping->physical->device;
    return memory && memory->kind != SIM_MEMORY_HOST && memory->kind != SIM_MEMORY_REGISTERED ? memory->device : NULL;
}

const unsigned char *sim_mapping_rights(const struct sim_mapping *mapping, uint64_t address)
{
    if (!mapping->granules)
        return mapping->access;
    return mapping->granules + (address - mapping->range.base) / SIM_GRANULE * SIM_DEVICES_MAX;
}

static int protection_of(unsigned flags)
{
    return flags & 2 ? PROT_READ | PROT_WRITE : flags & 1 ? PROT_READ : PROT_NONE;
}

/* What the host may do: the union of what the devices may. */
static int protection(const unsigned char *rights)
{
    unsigned all = 0;
    for (int i = 0; i < sim.device_count; i++)
        all |= rights[i];
    return protection_of(all);
}

bool sim_vmm_usable(const struct sim_memory *reservation, uint64_t address, uint64_t size, bool write,
    const struct sim_device *by)
{
    int need = write ? PROT_WRITE : PROT_READ;
    for (uint64_t end = address + size; address < end;) {
        struct sim_mapping *mapping = mapping_of(sim_ranges_find(&reservation->mappings, address));
        const unsigned char *rights = mapping ? sim_mapping_rights(mapping, address) : NULL;
        if (!mapping || !((by ? protection_of(rights[by->ordinal]) : protection(rights)) & need))
            return false;
        address = mapping->granules ? (address / SIM_GRANULE + 1) * SIM_GRANULE
                                    : mapping->range.base + mapping->range.size;
    }
    return true;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return prop->location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                                   : CUDA_ERROR_NOT_SUPPORTED;
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
    CUresult result = check_prop(prop);
    if (result == CUDA_SUCCESS)
        *granularity = SIM_GRANULE;
    return result;
}

/* Address space of `size` bytes at a multiple of `alignment`; at `hint` if it is free. */
static uint64_t reserve(uint64_t size, uint64_t alignment, uint64_t hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (hint && hint % alignment == 0) {
        void *at = mmap(pointer(hint), size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (at == pointer(hint))
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
        munmap(pointer(base + size), low + alignment - base);
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
    uint64_t base = reserve(size, alignment, hint);
    if (base && sim_memory_enter(SIM_MEMORY_RESERVATION, base, size, NULL, NULL)) {
        *address = base;
        result = CUDA_SUCCESS;
    } else if (base) {
        munmap(pointer(base), size);
    }
    sim_unlock();
    return result;
}

static struct sim_memory *reservation_around(uint64_t address, uint64_t size)
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
    struct sim_memory *memory = reservation_around(address, size);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (memory && memory->range.base == address && memory->range.size == size && !memory->mappings.root) {
        munmap(pointer(address), size);
        sim_memory_forget(memory);
        result = CUDA_SUCCESS;
    }
    sim_unlock();
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    ENTER_VMM(cuMemCreate);
    if (!handle || !size || !granular(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result != CUDA_SUCCESS)
        return result;
    if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC && sim.config.fabric == SIM_FABRIC_REFUSED)
        return CUDA_ERROR_NOT_PERMITTED;
    struct sim_physical *physical = calloc(1, sizeof *physical);
    sim_lock();
    struct sim_device *device = sim_device(prop->location.id);
    if (physical && sim_device_charge(device, size)) {
        physical->device = device;
        physical->size = size;
        physical->fd = device->fd;
        physical->offset = device->file_end;
        device->file_end += size;
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

/* Locked. */
static struct sim_physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct sim_physical *physical = pointer(handle);
    return sim_handle_valid(physical, SIM_KIND_PHYSICAL) && physical->handle_refs ? physical : NULL;
}

/* Gives the memory back once neither a handle nor a mapping is left. What was exported keeps its bytes, for another
   process may hold it by a descriptor that cannot be seen from here. A thread that is cancelled in one of these calls of
   libc would keep the lock. */
static void release_if_unused(struct sim_physical *physical)
{
    if (physical->handle_refs || physical->mappings)
        return;
    int cancel = sg_cancel_off();
    if (physical->foreign)
        close(physical->fd);
    else
        sim_device_discharge(physical->device, physical->size);
    if (!physical->foreign && !physical->exported)
        (void)!fallocate(physical->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)physical->offset,
            (off_t)physical->size);
    sg_cancel_restore(cancel);
    sim_handle_drop(&physical->handle);
    free(physical);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER_VMM(cuMemRelease);
    sim_lock();
    struct sim_physical *physical = physical_of(handle);
    if (physical) {
        physical->handle_refs--;
        release_if_unused(physical);
    }
    sim_unlock();
    return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A page's second address and those after it have a view of the memory that is their own from the first write on. */
static int sharing_of(const struct sim_physical *physical)
{
    return sim.config.aliases_apart >> physical->device->index & 1 && physical->mappings ? MAP_PRIVATE : MAP_SHARED;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    ENTER_VMM(cuMemMap);
    if (!size || !granular(size) || !granular(address) || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_mapping *mapping = calloc(1, sizeof *mapping);
    sim_lock();
    struct sim_physical *physical = physical_of(handle);
    struct sim_memory *reservation = reservation_around(address, size);
    CUresult result = CUDA_SUCCESS;
    if (!physical || size > physical->size || !reservation ||
        sim_ranges_overlap(&reservation->mappings, address, size))
        result = CUDA_ERROR_INVALID_VALUE;
    /* A full table of mappings (vm.max_map_count) is the only way in which this is known to fail. */
    else if (!mapping || mmap(pointer(address), size, PROT_NONE, sharing_of(physical) | MAP_FIXED | MAP_NORESERVE,
                             physical->fd, (off_t)physical->offset) == MAP_FAILED)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        mapping->range.base = address;
        mapping->range.size = size;
        mapping->physical = physical;
        mapping->buffer_id = ++sim.next_id;
        physical->mappings++;
        sim_ranges_insert(&reservation->mappings, &mapping->range);
    } else {
        free(mapping);
    }
    sim_unlock();
    return result;
}

static void wait_if_configured(void)
{
    for (int i = 0; sim.config.vmm_sync == SIM_VMM_SYNC_ALWAYS && i < sim.device_count; i++)
        sim_wait_device(&sim.devices[i]);
}

/* Whether [address, address + size) is a run of mappings without a gap, and, with `whole`, of entire ones. */
static struct sim_mapping *run_of_mappings(struct sim_memory *reservation, uint64_t address, uint64_t size, bool whole)
{
    struct sim_mapping *first = mapping_of(sim_ranges_find(&reservation->mappings, address));
    if (!first || (whole && first->range.base != address))
        return NULL;
    for (struct sim_mapping *mapping = first; mapping; mapping = next_mapping(reservation, mapping)) {
        uint64_t end = mapping->range.base + mapping->range.size;
        if (end >= address + size)
            return whole && end != address + size ? NULL : first;
    }
    return NULL;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    ENTER_VMM(cuMemUnmap);
    if (!size || !granular(size) || !granular(address))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    wait_if_configured();
    struct sim_memory *reservation = reservation_around(address, size);
    struct sim_mapping *mapping = reservation ? run_of_mappings(reservation, address, size, true) : NULL;
    CUresult result = mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (mapping && mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                       0) == MAP_FAILED)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        sim_hazard_unmap(address, size);
    uint64_t handles = 0;
    for (; result == CUDA_SUCCESS && mapping; handles++) {
        struct sim_mapping *next =
            mapping->range.base + mapping->range.size < address + size ? next_mapping(reservation, mapping) : NULL;
        sim_ranges_remove(&reservation->mappings, &mapping->range);
        mapping->physical->mappings--;
        release_if_unused(mapping->physical);
        sim_mappings_give((unsigned)__builtin_popcount(mapping->on));
        free(mapping->granules);
        free(mapping);
        mapping = next;
    }
    sim_unlock();
    sim_count_handles(SIM_CALL_cuMemUnmap, handles);
    return result;
}

static CUresult check_access(const CUmemAccessDesc *access, size_t count)
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

/* Rights on a part of a mapping are kept a granule at a time from then on. */
static bool keep_by_granule(struct sim_mapping *mapping)
{
    if (mapping->granules)
        return true;
    size_t count = mapping->range.size / SIM_GRANULE;
    mapping->granules = malloc(count * SIM_DEVICES_MAX);
    for (size_t i = 0; mapping->granules && i < count; i++)
        memcpy(mapping->granules + i * SIM_DEVICES_MAX, mapping->access, SIM_DEVICES_MAX);
    return mapping->granules != NULL;
}

static bool set_rights(struct sim_mapping *mapping, uint64_t base, uint64_t end, const CUmemAccessDesc *access,
    size_t count)
{
    bool whole = base == mapping->range.base && end == mapping->range.base + mapping->range.size;
    if (whole && mapping->granules && sim.device_count == 1) {
        free(mapping->granules);
        mapping->granules = NULL;
    }
    if (!whole && !keep_by_granule(mapping))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (whole)
            mapping->access[access[i].location.id] = (unsigned char)access[i].flags;
        for (uint64_t at = base; mapping->granules && at < end; at += SIM_GRANULE)
            mapping->granules[(at - mapping->range.base) / SIM_GRANULE * SIM_DEVICES_MAX +
                              (unsigned)access[i].location.id] = (unsigned char)access[i].flags;
    }
    return true;
}

/* One mprotect for each stretch of equal rights. */
static bool protect(const struct sim_memory *reservation, uint64_t address, uint64_t end)
{
    while (address < end) {
        uint64_t stretch = address;
        int prot = -1;
        while (stretch < end) {
            struct sim_mapping *mapping = mapping_of(sim_ranges_find(&reservation->mappings, stretch));
            assert(mapping);
            int here = protection(sim_mapping_rights(mapping, stretch));
            if (prot != -1 && prot != here)
                break;
            prot = here;
            stretch = mapping->granules ? stretch + SIM_GRANULE : mapping->range.base + mapping->range.size;
        }
        if (stretch > end)
            stretch = end;
        if (mprotect(pointer(address), stretch - address, prot) != 0)
            return false;
        address = stretch;
    }
    return true;
}

/* The devices on which `mapping` is to be once access is set. Of a part it is that the rest stays too. */
static uint32_t devices_then(const struct sim_mapping *mapping, bool whole, const CUmemAccessDesc *access, size_t count)
{
    uint32_t on = mapping->on;
    for (size_t i = 0; i < count; i++) {
        uint32_t bit = UINT32_C(1) << access[i].location.id;
        if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            on |= bit;
        else if (whole)
            on &= ~bit;
    }
    return on;
}

/* Takes what [address, end) lacks of the machine's mappings, and gives back what is of no use any more. False: there are
   too few, and nothing has changed. */
static bool take_mappings(struct sim_memory *reservation, struct sim_mapping *first, uint64_t address, uint64_t end,
    const CUmemAccessDesc *access, size_t count)
{
    uint64_t more = 0, less = 0;
    for (int done = 0; done < 2; done++) {
        for (struct sim_mapping *mapping = first; mapping && mapping->range.base < end;
             mapping = next_mapping(reservation, mapping)) {
            bool whole = mapping->range.base >= address && mapping->range.base + mapping->range.size <= end;
            uint32_t on = devices_then(mapping, whole, access, count);
            more += done ? 0 : (unsigned)__builtin_popcount(on & ~mapping->on);
            less += done ? 0 : (unsigned)__builtin_popcount(mapping->on & ~on);
            if (done)
                mapping->on = on;
        }
        if (!done && more && !sim_mappings_take(more))
            return false;
    }
    sim_mappings_give(less);
    return true;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
    ENTER_VMM(cuMemSetAccess);
    if (!size || !granular(size) || !granular(address) || !access || !count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_access(access, count);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    wait_if_configured();
    struct sim_memory *reservation = reservation_around(address, size);
    struct sim_mapping *mapping = reservation ? run_of_mappings(reservation, address, size, false) : NULL;
    if (!mapping)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!take_mappings(reservation, mapping, address, address + size, access, count))
        result = sim.config.mappings_code;
    uint64_t handles = 0; /* the driver maps each on each device */
    for (; result == CUDA_SUCCESS && mapping && mapping->range.base < address + size;
         mapping = next_mapping(reservation, mapping)) {
        uint64_t end = mapping->range.base + mapping->range.size;
        uint64_t low = mapping->range.base > address ? mapping->range.base : address;
        handles += count;
        if (!set_rights(mapping, low, end < address + size ? end : address + size, access, count))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && !protect(reservation, address, address + size))
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
    struct sim_physical *physical = physical_of(handle);
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
