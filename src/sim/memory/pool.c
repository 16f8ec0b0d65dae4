#include "memory/pool.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "device/card.h"
#include "device/device.h"
#include "hazard/hazard.h"
#include "space/arena.h"
#include "space/managed.h"
#include "streams/queue.h"
#include "streams/stream.h"

static CUmemoryPool pools;

static uint64_t pool_rounded(uint64_t size)
{
    return (size + SIM_ALIGNMENT - 1) & ~(uint64_t)(SIM_ALIGNMENT - 1);
}

CUmemoryPool sim_pool_new(struct sim_device *device, const CUmemPoolProps *props)
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
    device->default_pool = device->pool = sim_pool_new(device, &props);
    return device->pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Gives free ranges back to the device until no more than `keep` bytes are held, or all that is held is in use. */
void sim_pool_trim_to(CUmemoryPool pool, uint64_t keep)
{
    while (pool->reserved > keep && pool->free.root) {
        struct sim_range *range = pool->free.root;
        uint64_t bytes = range->size, surplus = pool_rounded(pool->reserved - keep);
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

void sim_pool_bury(CUmemoryPool pool)
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
        sim_pool_trim_to(pool, pool->threshold);
}

static void pool_keep_free(CUmemoryPool pool, uint64_t base, uint64_t size)
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
    pool_keep_free(pool, base, bytes);
    if (pool->dying)
        sim_pool_trim_to(pool, 0);
    if (pool->dying && !pool->used)
        sim_pool_bury(pool);
}

/* Memory of the same size that was freed earlier in this very stream can be had again without a wait. */
static struct sim_memory *pool_take_from_stream(CUmemoryPool pool, CUstream stream, uint64_t size)
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

static uint64_t pool_take_free(CUmemoryPool pool, uint64_t bytes)
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

static uint64_t pool_take_new(CUmemoryPool pool, uint64_t bytes)
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
static bool pool_wait_for_a_free(struct sim_device *device)
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

CUresult sim_pool_take(CUmemoryPool pool, CUstream stream, uint64_t size, CUdeviceptr *ret)
{
    struct sim_memory *memory = pool_take_from_stream(pool, stream, size);
    uint64_t bytes = pool_rounded(size), base = 0;
    while (!memory && !base) {
        base = pool_take_free(pool, bytes);
        if (!base)
            base = pool_take_new(pool, bytes);
        if (!base) {
            for (CUmemoryPool other = pools; other; other = other->next) {
                if (other->device == pool->device)
                    sim_pool_trim_to(other, 0);
            }
            base = pool_take_new(pool, bytes);
        }
        if (!base && !pool_wait_for_a_free(pool->device))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!memory) {
        memory = sim_memory_enter(SIM_MEMORY_POOL, base, size, NULL, pool->device);
        if (!memory) {
            pool_keep_free(pool, base, bytes);
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
