/* Entry points of memory: allocations of a device, managed ones, and the host's. */
#include "calls.h"
#include "device/card.h"
#include "device/context.h"
#include "device/peaks.h"
#include "memory/allocation.h"
#include "memory/graph_memory.h"
#include "space/memory_table.h"
#include "space/physical.h"
#include "streams/capture.h"
#include "streams/executor.h"
#include "streams/queue.h"

enum { PITCH = 512 };

static CUresult memory_allocate_kind(CUdeviceptr *ret, enum sim_memory_kind kind, size_t size, unsigned flags)
{
    sim_lock();
    CUcontext context;
    struct sim_memory *memory;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_forbids();
    if (result == CUDA_SUCCESS)
        result = sim_memory_take_kind(kind, sim_context_root(context), size, false, &memory);
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
    return address ? memory_allocate_kind(address, SIM_MEMORY_DEVICE, bytes, 0) : CUDA_ERROR_INVALID_VALUE;
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
    CUresult result = memory_allocate_kind(address, SIM_MEMORY_DEVICE, bytes, 0);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemAllocManaged);
    if (!address || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    return memory_allocate_kind(address, SIM_MEMORY_MANAGED, bytes, flags);
}

/* An allocation that begins there and that nobody is freeing yet. */
static struct sim_memory *memory_freeable(uint64_t address, unsigned kinds)
{
    struct sim_memory *memory = sim_memory_find(address);
    return memory && memory->range.base == address && sim_memory_is_freeable(memory) && kinds >> memory->kind & 1
               ? memory
               : NULL;
}

/* Waits for the work of the allocation's context, as the driver does, and then takes it away. Another thread that frees
   the same address meanwhile finds it leaving. */
static CUresult memory_wait_and_drop(struct sim_memory *memory)
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
        memory_freeable(address, 1u << SIM_MEMORY_DEVICE | 1u << SIM_MEMORY_POOL | 1u << SIM_MEMORY_MANAGED);
    if (result == CUDA_SUCCESS && (!memory || memory->uncharged))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_capture_forbids();
    if (result == CUDA_SUCCESS && memory->kind == SIM_MEMORY_POOL)
        sim_memory_drop(memory); /* of stream-ordered memory nothing is waited for: the program has seen to it */
    else if (result == CUDA_SUCCESS)
        result = memory_wait_and_drop(memory);
    sim_unlock();
    return result;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    SIM_ENTER(cuMemGetInfo_v2);
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_current(&context);
    sim_physical_sweep();
    sim_peaks_asked();
    if (result == CUDA_SUCCESS && free)
        *free = sim_card_free(context->device);
    if (result == CUDA_SUCCESS && total)
        *total = context->device->bytes + context->device->kept;
    sim_unlock();
    return result;
}

static CUresult memory_allocate_host(void **ret, size_t bytes, unsigned flags)
{
    CUdeviceptr address;
    CUresult result = memory_allocate_kind(&address, SIM_MEMORY_HOST, bytes, flags);
    if (result == CUDA_SUCCESS)
        *ret = (void *)(uintptr_t)address;
    return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    SIM_ENTER(cuMemAllocHost_v2);
    return pointer ? memory_allocate_host(pointer, bytes, CU_MEMHOSTALLOC_DEVICEMAP) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    SIM_ENTER(cuMemHostAlloc);
    if (!pointer || flags & ~7u)
        return CUDA_ERROR_INVALID_VALUE;
    return memory_allocate_host(pointer, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void *pointer)
{
    SIM_ENTER(cuMemFreeHost);
    sim_lock();
    struct sim_memory *memory = memory_freeable((uint64_t)(uintptr_t)pointer, 1u << SIM_MEMORY_HOST);
    CUresult result = memory ? sim_capture_forbids() : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = memory_wait_and_drop(memory);
    sim_unlock();
    return result;
}

static CUresult memory_find_host(const void *pointer, struct sim_memory **ret)
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
    CUresult result = memory_find_host(pointer, &memory);
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
    CUresult result = memory_find_host(pointer, &memory);
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
        struct sim_memory *memory = sim_memory_enter(SIM_MEMORY_REGISTERED, base, bytes, context, context->device);
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
    struct sim_memory *memory = memory_freeable((uint64_t)(uintptr_t)pointer, 1u << SIM_MEMORY_REGISTERED);
    CUresult result = memory ? memory_wait_and_drop(memory) : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    sim_unlock();
    return result;
}
