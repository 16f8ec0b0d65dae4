/* Questions of programs about addresses. VMM memory answers otherwise than cuMemAlloc's: its range is the reservation, its
   address range the single mapping, and no context owns it. */
#include <string.h>
#include <sys/mman.h>

#include "calls.h"
#include "device/context.h"
#include "device/device.h"
#include "space/managed.h"
#include "space/mapping.h"
#include "space/memory_table.h"

/* A fact about an address. `value` is written as the attribute's type wants it. */
struct fact {
    union {
        uint64_t wide;
        unsigned int narrow;
        unsigned char flag;
        void *pointer;
    };
    size_t size;
};

static struct fact fact_pointer(const void *pointer)
{
    return (struct fact){.pointer = (void *)(uintptr_t)pointer, .size = sizeof(void *)};
}

static struct fact fact_wide(uint64_t value)
{
    return (struct fact){.wide = value, .size = sizeof value};
}

static struct fact fact_narrow(unsigned value)
{
    return (struct fact){.narrow = value, .size = sizeof value};
}

static struct fact fact_flag(bool value)
{
    return (struct fact){.flag = value, .size = sizeof value};
}

/* A page in the host's memory is said to be of the device that asks. */
static struct sim_device *pointer_device(const struct sim_memory *memory, const struct sim_mapping *mapping)
{
    CUcontext context;
    if (!mapping || mapping->physical->device)
        return mapping ? mapping->physical->device : memory->device;
    return sim_context_current(&context) == CUDA_SUCCESS ? context->device : sim_device(0);
}

static unsigned pointer_rights(const struct sim_memory *memory, const struct sim_mapping *mapping, uint64_t address)
{
    CUcontext context;
    if (memory->kind != SIM_MEMORY_RESERVATION)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!mapping || sim_context_current(&context) != CUDA_SUCCESS)
        return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return sim_mapping_rights(mapping, address)[context->device->ordinal];
}

static bool pointer_on_host(const struct sim_memory *memory)
{
    return memory->kind == SIM_MEMORY_HOST || memory->kind == SIM_MEMORY_REGISTERED;
}

/* The host's memory behind a mapping has its type, though the host has no rights there. */
static unsigned pointer_type(const struct sim_memory *memory, const struct sim_mapping *mapping)
{
    bool host = pointer_on_host(memory) || (mapping && !mapping->physical->device);
    return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

static CUresult pointer_fact_of(CUpointer_attribute attribute, uint64_t address, struct fact *ret)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_mapping *mapping = sim_mapping_find(address);
    bool reservation = memory->kind == SIM_MEMORY_RESERVATION, host = pointer_on_host(memory);
    bool managed = memory->kind == SIM_MEMORY_MANAGED;
    struct sim_device *device = pointer_device(memory, mapping);
    if (!device && attribute != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR && attribute != CU_POINTER_ATTRIBUTE_MAPPED &&
        attribute != CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        return CUDA_ERROR_INVALID_VALUE; /* reserved, but nothing is mapped there */
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *ret = fact_pointer(memory->context);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *ret = fact_narrow(pointer_type(memory, mapping));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *ret = fact_wide(address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host && !managed)
            return CUDA_ERROR_INVALID_VALUE;
        *ret = fact_pointer((void *)(uintptr_t)address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *ret = fact_narrow(memory->sync_memops);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *ret = fact_wide(mapping ? mapping->buffer_id : memory->buffer_id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *ret = fact_narrow(managed);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *ret = fact_narrow((unsigned)device->ordinal);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *ret = fact_flag(memory->kind == SIM_MEMORY_DEVICE && sim.config.ipc);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *ret = fact_wide(memory->range.base);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *ret = fact_wide(memory->range.size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *ret = fact_flag(!reservation || mapping);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *ret = fact_wide(mapping ? (uint64_t)mapping->physical->prop.requestedHandleTypes : 0);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *ret = fact_flag(
            mapping ? mapping->physical->prop.allocFlags.gpuDirectRDMACapable : memory->kind == SIM_MEMORY_DEVICE);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *ret = fact_narrow(pointer_rights(memory, mapping, address));
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *ret = fact_pointer(memory->pool);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *ret = fact_wide(mapping ? mapping->range.size : memory->range.size);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *ret = fact_wide(mapping ? mapping->range.base : memory->range.base);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *ret = fact_wide(mapping ? mapping->buffer_id : memory->buffer_id);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *ret = fact_flag(false);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    SIM_ENTER(cuPointerGetAttribute);
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct fact fact;
    CUresult result = pointer_fact_of(attribute, address, &fact);
    if (result == CUDA_SUCCESS)
        memcpy(data, &fact, fact.size);
    sim_unlock();
    return result;
}

/* The answer for an address of which nothing is known: zero, and no device. */
static struct fact fact_nothing(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return fact_narrow((unsigned)CU_DEVICE_INVALID);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return fact_narrow(0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return fact_flag(false);
    default:
        return fact_wide(0);
    }
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    SIM_ENTER(cuPointerGetAttributes);
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    for (unsigned i = 0; i < count; i++) {
        struct fact fact;
        if (pointer_fact_of(attributes[i], address, &fact) != CUDA_SUCCESS)
            fact = fact_nothing(attributes[i]);
        if (data[i])
            memcpy(data[i], &fact, fact.size);
    }
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    SIM_ENTER(cuPointerSetAttribute);
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_memory *memory = sim_memory_find(address);
    CUresult result = !memory ? CUDA_ERROR_INVALID_VALUE
                      : memory->kind == SIM_MEMORY_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        memory->sync_memops = *(const unsigned *)value != 0;
    sim_unlock();
    return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    SIM_ENTER_WITH(cuMemGetAddressRange_v2, base, size);
    sim_lock();
    struct sim_memory *memory = sim_memory_find(address);
    struct sim_mapping *mapping = sim_mapping_find(address);
    const struct sim_range *range =
        mapping ? &mapping->range : memory && memory->kind != SIM_MEMORY_RESERVATION ? &memory->range : NULL;
    if (range && base)
        *base = range->base;
    if (range && size)
        *size = range->size;
    sim_unlock();
    return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static CUresult managed_check(uint64_t address, size_t count)
{
    sim_lock();
    struct sim_memory *memory = sim_memory_find(address);
    bool valid = count && memory && memory->kind == SIM_MEMORY_MANAGED &&
                 count <= memory->range.base + memory->range.size - address;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Advice changes nothing that a program could see. */
CUresult cuMemAdvise(CUdeviceptr address, size_t count, CUmem_advise advice, CUdevice device)
{
    SIM_ENTER(cuMemAdvise);
    (void)advice, (void)device;
    return managed_check(address, count);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t count, CUmem_advise advice, CUmemLocation location)
{
    SIM_ENTER(cuMemAdvise_v2);
    (void)advice, (void)location;
    return managed_check(address, count);
}

/* Fetched where it is submitted, not in the stream's order: a program sees no difference but in how much is free. NULL:
   to the host. */
static CUresult managed_prefetch(CUdeviceptr address, size_t count, struct sim_device *device)
{
    CUresult result = managed_check(address, count);
    if (result != CUDA_SUCCESS)
        return result;
    sim_lock();
    sim_managed_fetch(address, count, device);
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t count, CUdevice device, CUstream stream)
{
    SIM_ENTER_WITH(cuMemPrefetchAsync, address, count, device, stream);
    (void)stream;
    if (device != CU_DEVICE_CPU && !sim_device(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return managed_prefetch(address, count, sim_device(device));
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t count, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync(address, count, device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t count, CUmemLocation location, unsigned int flags,
    CUstream stream)
{
    SIM_ENTER(cuMemPrefetchAsync_v2);
    (void)stream;
    bool to_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (flags || location.type == CU_MEM_LOCATION_TYPE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    if (to_device && !sim_device(location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    return managed_prefetch(address, count, to_device ? sim_device(location.id) : NULL);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t count, CUmemLocation location, unsigned int flags,
    CUstream stream)
{
    return cuMemPrefetchAsync_v2(address, count, location, flags, stream);
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr address,
    size_t count)
{
    SIM_ENTER(cuMemRangeGetAttribute);
    if (!data || size < sizeof(int))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = managed_check(address, count);
    if (result == CUDA_SUCCESS)
        *(int *)data = attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ? 0 : (int)CU_DEVICE_INVALID;
    return result;
}
