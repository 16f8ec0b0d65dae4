/* Entry points of stream-ordered memory: allocations and frees in streams, and pools. */
#include <string.h>
#include <sys/mman.h>

#include "calls.h"
#include "device/context.h"
#include "device/device.h"
#include "graphs/captured_work.h"
#include "graphs/graph.h"
#include "memory/allocation.h"
#include "memory/graph_memory.h"
#include "memory/pool.h"
#include "space/memory_table.h"
#include "streams/capture.h"
#include "streams/executor.h"
#include "streams/work.h"
#include "work/program_stream.h"
#include "work/submit.h"

/* In a capture, the memory is the graph's. */
static CUresult pool_allocate_node(struct sim_device *device, CUstream stream, size_t bytes, CUdeviceptr *ret)
{
    struct sim_step step = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUgraphNode node;
    CUresult result = sim_graph_memory_new(device, bytes, &step.memory);
    uint64_t base = result == CUDA_SUCCESS ? step.memory->memory->range.base : 0;
    if (result == CUDA_SUCCESS)
        result = sim_capture_step(stream, step, &node);
    if (result == CUDA_SUCCESS)
        *ret = base;
    return result;
}

/* In a capture, only memory of graphs can be freed. */
static CUresult pool_free_node(struct sim_memory *memory, CUstream stream)
{
    CUgraphNode node;
    if (!memory->graph)
        return sim_capture_unsupported(stream);
    return sim_capture_step(stream,
        (struct sim_step){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .address = memory->range.base}, &node);
}

static CUresult pool_allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, bool default_pool, CUstream handle)
{
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > INT64_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && default_pool)
        pool = stream->context->device->pool;
    else if (result == CUDA_SUCCESS && !sim_handle_valid(pool, SIM_KIND_POOL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && sim_capturing(stream))
        result = pool_allocate_node(pool->device, stream, bytes, address);
    else if (result == CUDA_SUCCESS)
        result = sim_pool_take(pool, stream, bytes, address);
    if (result == CUDA_SUCCESS)
        sim_schedule_allocated();
    sim_unlock();
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    SIM_ENTER_WITH(cuMemAllocAsync, address, bytes, stream);
    return pool_allocate(address, bytes, NULL, true, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(address, bytes, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    SIM_ENTER_WITH(cuMemAllocFromPoolAsync, address, bytes, pool, stream);
    return pool_allocate(address, bytes, pool, false, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream ? stream : CU_STREAM_PER_THREAD);
}

struct departure {
    uint64_t base, buffer_id;
};

static void departure_finish(struct sim_work *work)
{
    const struct departure *departure = (const struct departure *)work->payload;
    struct sim_memory *memory = sim_memory_find(departure->base);
    if (memory && memory->buffer_id == departure->buffer_id)
        sim_memory_drop(memory);
}

/* A free that could not be submitted has not been asked for. Its memory can have been had again meanwhile. */
static void departure_undo(const struct departure *departure)
{
    struct sim_memory *memory = sim_memory_find(departure->base);
    if (!memory || memory->buffer_id != departure->buffer_id || !memory->leaving)
        return;
    struct sim_memory **link = memory->pool ? &memory->pool->leaving : NULL;
    while (link && *link && *link != memory)
        link = &(*link)->next_leaving;
    if (link && *link)
        *link = memory->next_leaving;
    memory->leaving = false;
    memory->leaving_on = NULL;
}

/* Pool memory, and cuMemAlloc memory too: the reference does not restrict where the pointer came from. */
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
    SIM_ENTER_WITH(cuMemFreeAsync, address, handle);
    if (!address)
        return CUDA_SUCCESS;
    struct sim_work *work = sim_work_new(sizeof(struct departure), NULL, departure_finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    CUstream stream;
    CUresult result = sim_stream_get(handle, &stream);
    struct sim_memory *memory = sim_memory_find(address);
    bool node = result == CUDA_SUCCESS && sim_capturing(stream); /* frees what a launch will have taken by then */
    bool known = memory && memory->range.base == address && !memory->uncharged &&
                 (node || sim_memory_is_freeable(memory)) &&
                 (memory->kind == SIM_MEMORY_POOL || memory->kind == SIM_MEMORY_DEVICE);
    if (result == CUDA_SUCCESS && !known)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && node) {
        sim_work_free(work);
        result = pool_free_node(memory, stream);
    } else if (result == CUDA_SUCCESS) {
        struct departure departure = {address, memory->buffer_id};
        memcpy(work->payload, &departure, sizeof departure);
        memory->leaving = true;
        if (memory->pool) {
            memory->leaving_on = stream;
            memory->next_leaving = memory->pool->leaving;
            memory->pool->leaving = memory;
        }
        uint64_t position;
        result = sim_submit(stream, work, &position);
        if (result == CUDA_SUCCESS)
            sim_graph_memory_freed(address, stream, position);
        else
            departure_undo(&departure);
    } else {
        sim_work_free(work);
    }
    sim_unlock();
    return result;
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    return cuMemFreeAsync(address, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    SIM_ENTER(cuMemPoolCreate);
    if (!pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sim_device *device = sim_device(props->location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    CUmemoryPool made = sim_pool_new(device, props);
    sim_unlock();
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = made;
    return CUDA_SUCCESS;
}

#define WITH_POOL(pool) \
    sim_lock();         \
    CUresult result = sim_handle_valid((pool), SIM_KIND_POOL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    SIM_ENTER(cuMemPoolDestroy);
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS && pool == pool->device->default_pool)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        if (pool->device->pool == pool)
            pool->device->pool = pool->device->default_pool;
        sim_handle_drop(&pool->handle);
        pool->dying = true;
        sim_pool_trim_to(pool, 0);
        if (!pool->used)
            sim_pool_bury(pool);
    }
    sim_unlock();
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    SIM_ENTER(cuMemPoolTrimTo);
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS)
        sim_pool_trim_to(pool, keep);
    sim_unlock();
    return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_ENTER(cuMemPoolSetAttribute);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS) {
        switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value != 0;
            break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            pool->threshold = *(cuuint64_t *)value;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: /* these two can only be reset */
            result = *(cuuint64_t *)value ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
            pool->reserved_high = result == CUDA_SUCCESS ? pool->reserved : pool->reserved_high;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            result = *(cuuint64_t *)value ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
            pool->used_high = result == CUDA_SUCCESS ? pool->used : pool->used_high;
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    sim_unlock();
    return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    SIM_ENTER(cuMemPoolGetAttribute);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS) {
        switch (attribute) {
        case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
            *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
            break;
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
            *(cuuint64_t *)value = pool->threshold;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
            *(cuuint64_t *)value = pool->reserved;
            break;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            *(cuuint64_t *)value = pool->reserved_high;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
            *(cuuint64_t *)value = pool->used;
            break;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            *(cuuint64_t *)value = pool->used_high;
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
        }
    }
    sim_unlock();
    return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    SIM_ENTER(cuMemPoolSetAccess);
    if (!access && count)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        struct sim_device *device = sim_device(access[i].location.id);
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device)
            result = CUDA_ERROR_INVALID_DEVICE;
        else if (device == pool->device && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            result = CUDA_ERROR_INVALID_VALUE; /* the owner cannot be shut out */
        else
            pool->access[device->ordinal] = access[i].flags;
    }
    sim_unlock();
    return result;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    SIM_ENTER(cuMemPoolGetAccess);
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !sim_device(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS)
        *flags = pool->access[location->id];
    sim_unlock();
    return result;
}

/* No pool has a handle type that could be shared. */
CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, CUmemAllocationHandleType type,
    unsigned long long flags)
{
    SIM_ENTER(cuMemPoolExportToShareableHandle);
    (void)handle, (void)pool, (void)type, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult pool_of_device(CUmemoryPool *ret, CUdevice ordinal, bool default_pool)
{
    struct sim_device *device = sim_device(ordinal);
    if (!ret || !device)
        return ret ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    *ret = default_pool ? device->default_pool : device->pool;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetDefaultMemPool);
    return pool_of_device(pool, device, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetMemPool);
    return pool_of_device(pool, device, false);
}

CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
    SIM_ENTER(cuDeviceSetMemPool);
    struct sim_device *device = sim_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS && pool->device != device)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        device->pool = pool;
    sim_unlock();
    return result;
}
