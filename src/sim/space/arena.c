#include "space/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "device/device.h"

enum { PAGE = 4096 };

struct sim_arena {
    struct sim_device *device; /* NULL: anonymous memory */
    uint64_t chunk;            /* address space taken at a time */
    struct sim_ranges free;
    struct chunk {
        uint64_t base, size, offset; /* offset in the device's file */
        struct chunk *next;
    } *chunks;
};

static uint64_t arena_round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

struct sim_arena *sim_arena_new(struct sim_device *device, uint64_t chunk)
{
    struct sim_arena *arena = calloc(1, sizeof *arena);
    if (arena) {
        arena->device = device;
        arena->chunk = chunk;
    }
    return arena;
}

static struct sim_range *arena_new_range(uint64_t base, uint64_t size)
{
    struct sim_range *range = calloc(1, sizeof *range);
    if (range) {
        range->base = base;
        range->size = size;
    }
    return range;
}

/* Adds a chunk with room for `size` bytes. */
static struct sim_range *arena_grow(struct sim_arena *arena, uint64_t size)
{
    uint64_t length = arena_round_up(size > arena->chunk ? size : arena->chunk, SIM_GRANULE);
    struct sim_range *range = arena_new_range(0, length);
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!range || !chunk) {
        free(range);
        free(chunk);
        return NULL;
    }
    struct sim_device *device = arena->device;
    int flags = MAP_NORESERVE | (device ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    void *base = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, device ? device->fd : -1,
        device ? (off_t)device->file_end : 0);
    if (base == MAP_FAILED) {
        free(range);
        free(chunk);
        return NULL;
    }
    *chunk = (struct chunk){(uint64_t)(uintptr_t)base, length, device ? device->file_end : 0, arena->chunks};
    arena->chunks = chunk;
    if (device)
        device->file_end += length;
    range->base = (uint64_t)(uintptr_t)base;
    sim_ranges_insert(&arena->free, range);
    return range;
}

uint64_t sim_arena_take(struct sim_arena *arena, uint64_t size)
{
    size = arena_round_up(size, SIM_ALIGNMENT);
    struct sim_range *range = sim_ranges_first_fit(&arena->free, size);
    if (!range && !(range = arena_grow(arena, size)))
        return 0;
    uint64_t base = range->base;
    sim_ranges_remove(&arena->free, range);
    if (range->size == size) {
        free(range);
    } else {
        range->base += size;
        range->size -= size;
        sim_ranges_insert(&arena->free, range);
    }
    return base;
}

bool sim_arena_offset(const struct sim_arena *arena, uint64_t address, uint64_t *ret)
{
    for (const struct chunk *chunk = arena->chunks; chunk; chunk = chunk->next) {
        if (address - chunk->base >= chunk->size)
            continue;
        *ret = chunk->offset + (address - chunk->base);
        return true;
    }
    return false;
}

/* The host's pages that are now wholly free, around what was just given. */
static void arena_give_pages(const struct sim_arena *arena, const struct sim_range *merged, uint64_t base, uint64_t end)
{
    uint64_t low = base / PAGE * PAGE, high = arena_round_up(end, PAGE);
    if (low < merged->base)
        low = arena_round_up(merged->base, PAGE);
    if (high > merged->base + merged->size)
        high = (merged->base + merged->size) / PAGE * PAGE;
    if (low < high)
        madvise((void *)(uintptr_t)low, high - low, arena->device ? MADV_REMOVE : MADV_DONTNEED);
}

void sim_arena_give(struct sim_arena *arena, uint64_t base, uint64_t size)
{
    size = arena_round_up(size, SIM_ALIGNMENT);
    assert(!sim_ranges_overlap(&arena->free, base, size));
    struct sim_range *low = sim_ranges_ending_at(&arena->free, base);
    struct sim_range *high = sim_ranges_find(&arena->free, base + size);
    if (low)
        sim_ranges_remove(&arena->free, low);
    if (high)
        sim_ranges_remove(&arena->free, high);
    uint64_t merged_base = low ? low->base : base;
    uint64_t merged_end = high ? high->base + high->size : base + size;
    struct sim_range *range = low ? low : high ? high : arena_new_range(0, 0);
    if (!range)
        return; /* out of host memory: the addresses are lost, nothing else */
    if (low && high)
        free(high);
    range->base = merged_base;
    range->size = merged_end - merged_base;
    sim_ranges_insert(&arena->free, range);
    arena_give_pages(arena, range, base, base + size);
}
