#include "graphs/graph.h"
#include "hazard/hazard.h"
#include "memory/managed.h"
#include "hazard/owner.h"
#include "streams/executor.h"

#include <stdlib.h>

enum { PITCH = 512 };
static const uint64_t host_chunk = UINT64_C(1) << 30;

static struct sim_arena *managed_arena, *host_arena, *global_arena;

struct sim_memory *sim_memory_find(uint64_t address)
{
    struct sim_range *range = sim_ranges_find(&sim.memory, address);
    return range ? SIM_CONTAINER(range, struct sim_memory, range) : NULL;
}

struct sim_memory *sim_memory_enter(enum sim_memory_kind kind, uint64_t base, uint64_t size, CUcontext context,
    struct sim_device *device)
{
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    memory->range.base = base;
    memory->range.size = size;
    memory->kind = kind;
    memory->context = context;
    memory->device = device;
    memory->buffer_id = ++sim.next_id;
    sim_ranges_insert(&sim.memory, &memory->range);
    return memory;
}

void sim_memory_forget(struct sim_memory *memory)
{
    sim_ranges_remove(&sim.memory, &memory->range);
    free(memory);
}

static struct sim_arena *arena_of(enum sim_memory_kind kind, struct sim_device *device, bool uncharged)
{
    struct sim_arena **arena = kind == SIM_MEMORY_MANAGED ? &managed_arena
                               : kind == SIM_MEMORY_HOST  ? &host_arena
                               : uncharged                ? &global_arena
                                                          : &device->arena;
    if (!*arena)
        *arena = sim_arena_new(NULL, host_chunk);
    return *arena;
}

/* How many of the machine's mappings a device's allocation takes: none where it shares its page with others. */
static uint64_t mappings_of(enum sim_memory_kind kind, uint64_t bytes)
{
    return kind == SIM_MEMORY_DEVICE && bytes >= SIM_GRANULE;
}

static CUresult take(enum sim_memory_kind kind, CUcontext context, uint64_t size, bool uncharged,
    struct sim_memory **ret)
{
    struct sim_device *device = context->device;
    bool charged = kind == SIM_MEMORY_DEVICE && !uncharged;
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t unit = charged && size >= SIM_GRANULE ? SIM_GRANULE : SIM_ALIGNMENT; /* small ones share pages */
    uint64_t bytes = (size + unit - 1) & ~(unit - 1);
    if (charged && !sim_mappings_take(mappings_of(kind, bytes)))
        return sim.config.mappings_code;
    if (charged && !sim_device_charge(device, bytes)) {
        sim_mappings_give(mappings_of(kind, bytes));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_arena *arena = arena_of(kind, device, uncharged);
    uint64_t base = arena ? sim_arena_take(arena, bytes) : 0;
    struct sim_memory *memory = base ? sim_memory_enter(kind, base, size, context, device) : NULL;
    if (memory && kind == SIM_MEMORY_MANAGED && !sim_managed_begin(memory)) {
        sim_memory_forget(memory);
        memory = NULL;
    }
    if (!memory) {
        if (base)
            sim_arena_give(arena, base, bytes);
        if (charged) {
            sim_mappings_give(mappings_of(kind, bytes));
            sim_device_discharge(device, bytes);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->charged = bytes;
    memory->uncharged = uncharged;
    *ret = memory;
    return CUDA_SUCCESS;
}

CUresult sim_memory_take(CUcontext context, uint64_t size, bool uncharged, struct sim_memory **ret)
{
    return take(SIM_MEMORY_DEVICE, context, size, uncharged, ret);
}

void sim_memory_drop(struct sim_memory *memory)
{
    if (memory->graph) {
        sim_graph_memory_give(memory->graph);
        return;
    }
    switch (memory->kind) {
    case SIM_MEMORY_POOL:
        sim_pool_give(memory);
        return;
    case SIM_MEMORY_DEVICE:
        if (!memory->uncharged) {
            sim_mappings_give(mappings_of(memory->kind, memory->charged));
            sim_device_discharge(memory->device, memory->charged);
        }
        __attribute__((fallthrough));
    case SIM_MEMORY_MANAGED:
    case SIM_MEMORY_HOST:
        sim_managed_end(memory);
        sim_arena_give(arena_of(memory->kind, memory->device, memory->uncharged), memory->range.base, memory->charged);
        break;
    case SIM_MEMORY_IMPORTED:
        sim_ipc_unmap(memory);
        break;
    case SIM_MEMORY_REGISTERED:
    case SIM_MEMORY_RESERVATION:
        break;
    }
    sim_hazard_given(memory->range.base, memory->range.size);
    if (sim.config.hazard)
        sim_owner_forget(memory->range.base, memory->range.size);
    sim_memory_forget(memory);
}

void sim_memory_drop_context(CUcontext context)
{
    struct sim_range *range = sim_ranges_at_or_after(&sim.memory, 0);
    while (range) {
        struct sim_memory *memory = SIM_CONTAINER(range, struct sim_memory, range);
        range = sim_ranges_at_or_after(&sim.memory, range->base + range->size);
        if (memory->context == context)
            sim_memory_drop(memory);
    }
}

enum sim_span sim_span(uint64_t address, uint64_t size, bool write, const struct sim_device *by)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (!memory)
        return SIM_SPAN_PAGEABLE;
    bool inside = size <= memory->range.base + memory->range.size - address;
    switch (memory->kind) {
    case SIM_MEMORY_HOST:
    case SIM_MEMORY_REGISTERED:
        return inside ? SIM_SPAN_PINNED : SIM_SPAN_PAGEABLE;
    case SIM_MEMORY_DEVICE:
    case SIM_MEMORY_POOL:
    case SIM_MEMORY_MANAGED:
    case SIM_MEMORY_IMPORTED:
        return inside ? SIM_SPAN_DEVICE : SIM_SPAN_BAD;
    case SIM_MEMORY_RESERVATION:
        break;
    }
    return inside && sim_vmm_usable(memory, address, size, write, by) ? SIM_SPAN_DEVICE : SIM_SPAN_BAD;
}

static CUresult allocate(CUdeviceptr *ret, enum sim_memory_kind kind, size_t size, unsigned flags)
{
    sim_lock();
    CUcontext context;
    struct sim_memory *memory;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_forbids();
    if (result == CUDA_SUCCESS)
        result = take(kind, sim_context_root(context), size, false, &memory);
    if (result == CUDA_SUCCESS) {
        memory->flags = flags;
        *ret = memory->range.base;
        sim_schedule_allocated();
    }
    sim_unlock();
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    SIM_ENTER(cuMemAlloc_v2);
    return address ? allocate(address, SIM_MEMORY_DEVICE, bytes, 0) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    SIM_ENTER(cuMemAllocPitch_v2);
    if (!address || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row, bytes;
    if (__builtin_add_overflow(width, PITCH - 1, &row) ||
        __builtin_mul_overflow(row &= ~(size_t)(PITCH - 1), height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = allocate(address, SIM_MEMORY_DEVICE, bytes, 0);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemAllocManaged);
    if (!address || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    return allocate(address, SIM_MEMORY_MANAGED, bytes, flags);
}

/* An allocation that begins there and that nobody is freeing yet. */
static struct sim_memory *freeable(uint64_t address, unsigned kinds)
{
    struct sim_memory *memory = sim_memory_find(address);
    return memory && memory->range.base == address && sim_memory_is_freeable(memory) && kinds >> memory->kind & 1
               ? memory
               : NULL;
}

/* Waits for the work of the allocation's context, as the driver does, and then takes it away. Another thread that frees
   the same address meanwhile finds it leaving. */
static CUresult wait_and_drop(struct sim_memory *memory)
{
    uint64_t base = memory->range.base, id = memory->buffer_id;
    CUcontext context = memory->context;
    memory->leaving = true;
    CUresult result = sim_wait_context(context);
    if (result == CUDA_ERROR_DEINITIALIZED)
        return result;
    memory = sim_memory_find(base);
    if (memory && memory->buffer_id == id)
        sim_memory_drop(memory);
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    SIM_ENTER(cuMemFree_v2);
    if (!address)
        return CUDA_SUCCESS;
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_current(&context);
    struct sim_memory *memory =
        freeable(address, 1u << SIM_MEMORY_DEVICE | 1u << SIM_MEMORY_POOL | 1u << SIM_MEMORY_MANAGED);
    if (result == CUDA_SUCCESS && (!memory || memory->uncharged))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_forbids();
    if (result == CUDA_SUCCESS && memory->kind == SIM_MEMORY_POOL)
        sim_memory_drop(memory); /* of stream-ordered memory nothing is waited for: the program has seen to it */
    else if (result == CUDA_SUCCESS)
        result = wait_and_drop(memory);
    sim_unlock();
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    SIM_ENTER(cuMemGetInfo_v2);
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && free)
        *free = context->device->bytes - context->device->used - sim_card_others(context->device);
    if (result == CUDA_SUCCESS && total)
        *total = context->device->bytes + context->device->kept;
    sim_unlock();
    return result;
}

static CUresult host_allocate(void **ret, size_t bytes, unsigned flags)
{
    CUdeviceptr address;
    CUresult result = allocate(&address, SIM_MEMORY_HOST, bytes, flags);
    if (result == CUDA_SUCCESS)
        *ret = (void *)(uintptr_t)address;
    return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    SIM_ENTER(cuMemAllocHost_v2);
    return pointer ? host_allocate(pointer, bytes, CU_MEMHOSTALLOC_DEVICEMAP) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostAlloc);
    if (!pointer || flags & ~7u)
        return CUDA_ERROR_INVALID_VALUE;
    return host_allocate(pointer, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void *pointer)
{
    SIM_ENTER(cuMemFreeHost);
    sim_lock();
    struct sim_memory *memory = freeable((uint64_t)(uintptr_t)pointer, 1u << SIM_MEMORY_HOST);
    CUresult result = memory ? sim_capture_forbids() : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = wait_and_drop(memory);
    sim_unlock();
    return result;
}

static CUresult host_lookup(const void *pointer, struct sim_memory **ret)
{
    struct sim_memory *memory = sim_memory_find((uint64_t)(uintptr_t)pointer);
    if (!memory || (memory->kind != SIM_MEMORY_HOST && memory->kind != SIM_MEMORY_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *ret = memory;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags)
{
    SIM_ENTER(cuMemHostGetDevicePointer_v2);
    if (!address || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_memory *memory;
    CUresult result = host_lookup(pointer, &memory);
    if (result == CUDA_SUCCESS)
        *address = (CUdeviceptr)(uintptr_t)pointer;
    sim_unlock();
    return result;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *pointer)
{
    SIM_ENTER_WITH(cuMemHostGetFlags, flags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_memory *memory;
    CUresult result = host_lookup(pointer, &memory);
    if (result == CUDA_SUCCESS)
        *flags = memory->flags;
    sim_unlock();
    return result;
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostRegister_v2);
    uint64_t base = (uint64_t)(uintptr_t)pointer;
    if (!pointer || !bytes || bytes > UINT64_MAX - base || flags & ~15u)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && sim_ranges_overlap(&sim.memory, base, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (result == CUDA_SUCCESS) {
        struct sim_memory *memory =
            sim_memory_enter(SIM_MEMORY_REGISTERED, base, bytes, context, context->device);
        if (memory)
            memory->flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sim_unlock();
    return result;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void *pointer)
{
    SIM_ENTER(cuMemHostUnregister);
    sim_lock();
    struct sim_memory *memory = freeable((uint64_t)(uintptr_t)pointer, 1u << SIM_MEMORY_REGISTERED);
    CUresult result = memory ? wait_and_drop(memory) : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    sim_unlock();
    return result;
}
