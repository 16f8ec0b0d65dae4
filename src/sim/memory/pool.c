/* Memory in stream order. An address is given out at once; a free takes effect when the stream reaches it. A pool keeps
   what was freed until a synchronisation finds more than its release threshold. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "graphs/graph.h"
#include "hazard/hazard.h"
#include "streams/executor.h"

struct CUmemPoolHandle_st {
    struct sim_handle handle;
    struct sim_device *device;
    CUmemoryPool next; /* in pools */
    CUmemPoolProps props;
    bool dying;        /* destroyed with memory still out */
    uint64_t threshold, reserved, reserved_high, used, used_high;
    int reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_… */
    CUmemAccess_flags access[SIM_DEVICES_MAX];
    struct sim_ranges free;       /* held, used by nobody */
    struct sim_memory *leaving;   /* freed in streams that have not got there yet */
};

static CUmemoryPool pools;

static uint64_t rounded(uint64_t size)
{
    return (size + SIM_ALIGNMENT - 1) & ~(uint64_t)(SIM_ALIGNMENT - 1);
}

static CUmemoryPool new_pool(struct sim_device *device, const CUmemPoolProps *props)
{
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->device = device;
    pool->props = *props;
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    pool->access[device->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pool->next = pools;
    pools = pool;
    sim_handle_add(&pool->handle, SIM_KIND_POOL);
    return pool;
}

CUresult sim_pool_start(struct sim_device *device)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};
    device->default_pool = device->pool = new_pool(device, &props);
    return device->pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives free ranges back to the device until no more than `keep` bytes are held, or all that is held is in use. */
static void trim(CUmemoryPool pool, uint64_t keep)
{
    while (pool->reserved > keep && pool->free.root) {
        struct sim_range *range = pool->free.root;
        uint64_t bytes = range->size, surplus = rounded(pool->reserved - keep);
        sim_ranges_remove(&pool->free, range);
        if (bytes > surplus)
            bytes = surplus;
        uint64_t base = range->base + range->size - bytes;
        range->size -= bytes;
        if (range->size)
            sim_ranges_insert(&pool->free, range);
        else
            free(range);
        pool->reserved -= bytes;
        sim_device_discharge(pool->device, bytes);
        sim_arena_give(pool->device->arena, base, bytes);
    }
}

static void bury(CUmemoryPool pool)
{
    CUmemoryPool *link = &pools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    free(pool);
}

void sim_pool_trim(void)
{
    for (CUmemoryPool pool = pools; pool; pool = pool->next)
        trim(pool, pool->threshold);
}

static void keep_free(CUmemoryPool pool, uint64_t base, uint64_t size)
{
    struct sim_range *low = sim_ranges_ending_at(&pool->free, base);
    struct sim_range *high = sim_ranges_find(&pool->free, base + size);
    if (low) {
        sim_ranges_remove(&pool->free, low);
        base = low->base;
        size += low->size;
    }
    if (high) {
        sim_ranges_remove(&pool->free, high);
        size += high->size;
    }
    struct sim_range *range = low ? low : high ? high : calloc(1, sizeof *range);
    if (low && high)
        free(high);
    if (!range) { /* out of host memory: give the device its bytes back at once */
        pool->reserved -= size;
        sim_device_discharge(pool->device, size);
        sim_arena_give(pool->device->arena, base, size);
        return;
    }
    range->base = base;
    range->size = size;
    sim_ranges_insert(&pool->free, range);
}

void sim_pool_give(struct sim_memory *memory)
{
    CUmemoryPool pool = memory->pool;
    struct sim_memory **link = &pool->leaving;
    while (*link && *link != memory)
        link = &(*link)->next_leaving;
    if (*link)
        *link = memory->next_leaving;
    uint64_t base = memory->range.base, bytes = memory->charged;
    sim_hazard_given(base, memory->range.size);
    sim_memory_forget(memory);
    pool->used -= bytes;
    keep_free(pool, base, bytes);
    if (pool->dying)
        trim(pool, 0);
    if (pool->dying && !pool->used)
        bury(pool);
}

/* Memory of the same size that was freed earlier in this very stream can be had again without a wait. */
static struct sim_memory *take_from_stream(CUmemoryPool pool, CUstream stream, uint64_t size)
{
    for (struct sim_memory **link = &pool->leaving; *link; link = &(*link)->next_leaving) {
        struct sim_memory *memory = *link;
        if (memory->leaving_on != stream || memory->range.size != size)
            continue;
        *link = memory->next_leaving;
        memory->leaving = false;
        memory->leaving_on = NULL;
        memory->buffer_id = ++sim.next_id; /* the free under way no longer means it */
        return memory;
    }
    return NULL;
}

static uint64_t take_free(CUmemoryPool pool, uint64_t bytes)
{
    struct sim_range *range = sim_ranges_first_fit(&pool->free, bytes);
    if (!range)
        return 0;
    uint64_t base = range->base;
    sim_ranges_remove(&pool->free, range);
    range->base += bytes;
    range->size -= bytes;
    if (range->size)
        sim_ranges_insert(&pool->free, range);
    else
        free(range);
    return base;
}

static uint64_t take_new(CUmemoryPool pool, uint64_t bytes)
{
    if (pool->props.maxSize && bytes + pool->reserved > pool->props.maxSize)
        return 0;
    if (!sim_device_charge(pool->device, bytes))
        return 0;
    uint64_t base = sim_arena_take(pool->device->arena, bytes);
    if (!base) {
        sim_device_discharge(pool->device, bytes);
        return 0;
    }
    pool->reserved += bytes;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return base;
}

/* A free of the device's pools that has not taken effect yet is waited for. Where its stream has nothing left to do,
   another thread is about to submit it, and needs the lock for that. */
static bool wait_for_a_free(struct sim_device *device)
{
    for (CUmemoryPool pool = pools; pool; pool = pool->next) {
        if (pool->device != device || !pool->leaving)
            continue;
        struct sim_memory *last = pool->leaving;
        while (last->next_leaving)
            last = last->next_leaving;
        if (!sim_stream_idle(last->leaving_on))
            return sim_wait_stream(last->leaving_on) == CUDA_SUCCESS;
        sim_unlock();
        sched_yield();
        sim_lock();
        return true;
    }
    return false;
}

static CUresult take(CUmemoryPool pool, CUstream stream, uint64_t size, CUdeviceptr *ret)
{
    struct sim_memory *memory = take_from_stream(pool, stream, size);
    uint64_t bytes = rounded(size), base = 0;
    while (!memory && !base) {
        base = take_free(pool, bytes);
        if (!base)
            base = take_new(pool, bytes);
        if (!base) {
            for (CUmemoryPool other = pools; other; other = other->next) {
                if (other->device == pool->device)
                    trim(other, 0);
            }
            base = take_new(pool, bytes);
        }
        if (!base && !wait_for_a_free(pool->device))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!memory) {
        memory = sim_memory_enter(SIM_MEMORY_POOL, base, size, NULL, pool->device);
        if (!memory) {
            keep_free(pool, base, bytes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memory->charged = bytes;
        memory->pool = pool;
        pool->used += bytes;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
    }
    *ret = memory->range.base;
    return CUDA_SUCCESS;
}

/* In a capture, the memory is the graph's. */
static CUresult allocate_node(struct sim_device *device, CUstream stream, size_t bytes, CUdeviceptr *ret)
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
static CUresult free_node(struct sim_memory *memory, CUstream stream)
{
    CUgraphNode node;
    if (!memory->graph)
        return sim_capture_unsupported(stream);
    return sim_capture_step(stream,
        (struct sim_step){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .address = memory->range.base}, &node);
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, bool default_pool, CUstream handle)
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
        result = allocate_node(pool->device, stream, bytes, address);
    else if (result == CUDA_SUCCESS)
        result = take(pool, stream, bytes, address);
    if (result == CUDA_SUCCESS)
        sim_schedule_allocated();
    sim_unlock();
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    SIM_ENTER_WITH(cuMemAllocAsync, address, bytes, stream);
    return allocate(address, bytes, NULL, true, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(address, bytes, stream ? stream : CU_STREAM_PER_THREAD);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    SIM_ENTER_WITH(cuMemAllocFromPoolAsync, address, bytes, pool, stream);
    return allocate(address, bytes, pool, false, stream);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream ? stream : CU_STREAM_PER_THREAD);
}

struct departure {
    uint64_t base, buffer_id;
};

static void finish_free(struct sim_work *work)
{
    const struct departure *departure = (const struct departure *)work->payload;
    struct sim_memory *memory = sim_memory_find(departure->base);
    if (memory && memory->buffer_id == departure->buffer_id)
        sim_memory_drop(memory);
}

/* A free that could not be submitted has not been asked for. Its memory can have been had again meanwhile. */
static void stay(const struct departure *departure)
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
    struct sim_work *work = sim_work_new(sizeof(struct departure), NULL, finish_free);
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
        result = free_node(memory, stream);
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
            stay(&departure);
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
    CUmemoryPool made = new_pool(device, props);
    sim_unlock();
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = made;
    return CUDA_SUCCESS;
}

#define WITH_POOL(pool)                                                             \
    sim_lock();                                                                     \
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
        trim(pool, 0);
        if (!pool->used)
            bury(pool);
    }
    sim_unlock();
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    SIM_ENTER(cuMemPoolTrimTo);
    WITH_POOL(pool);
    if (result == CUDA_SUCCESS)
        trim(pool, keep);
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

static CUresult device_pool(CUmemoryPool *ret, CUdevice ordinal, bool default_pool)
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
    return device_pool(pool, device, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    SIM_ENTER(cuDeviceGetMemPool);
    return device_pool(pool, device, false);
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
