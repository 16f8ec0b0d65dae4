#include "memory/alloc.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct hole {
    size_t offset, bytes;
};

struct arena {
    struct allocator base;
    const struct cuda_rt *rt;
    char *memory;
    size_t extent;
    struct hole *holes; /* ascending, never adjacent; none when the arena is full */
    size_t count, capacity;
};

/* A plan gives out addresses from here instead of memory: they must not be NULL and are never looked at. */
static char *const PLAN_BASE = (char *)(uintptr_t)TENSOR_ALIGNMENT;

static size_t arena_rounded(size_t bytes)
{
    return (bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
}

static int arena_take(struct allocator *self, size_t bytes, void **ret_pointer)
{
    struct arena *arena = (struct arena *)self;
    size_t need = arena_rounded(bytes), i = 0;
    while (i < arena->count && arena->holes[i].bytes < need)
        i++;
    if (i == arena->count)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct hole *hole = &arena->holes[i];
    *ret_pointer = arena->memory + hole->offset;
    if (hole->offset + need > arena->extent)
        arena->extent = hole->offset + need;
    hole->offset += need;
    hole->bytes -= need;
    if (!hole->bytes)
        memmove(hole, hole + 1, (--arena->count - i) * sizeof *hole);
    return CUDA_SUCCESS_VALUE;
}

static int arena_give(struct allocator *self, void *pointer, size_t bytes)
{
    struct arena *arena = (struct arena *)self;
    struct hole freed = {(size_t)((char *)pointer - arena->memory), arena_rounded(bytes)};
    size_t low = 0, high = arena->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (arena->holes[middle].offset < freed.offset)
            low = middle + 1;
        else
            high = middle;
    }
    struct hole *next = low < arena->count ? &arena->holes[low] : NULL;
    struct hole *previous = low > 0 ? &arena->holes[low - 1] : NULL;
    assert(!next || freed.offset + freed.bytes <= next->offset);
    assert(!previous || previous->offset + previous->bytes <= freed.offset);
    int joins_next = next && freed.offset + freed.bytes == next->offset;
    int joins_previous = previous && previous->offset + previous->bytes == freed.offset;
    if (joins_previous && joins_next) {
        previous->bytes += freed.bytes + next->bytes;
        memmove(next, next + 1, (--arena->count - low) * sizeof *next);
    } else if (joins_previous) {
        previous->bytes += freed.bytes;
    } else if (joins_next) {
        next->offset = freed.offset;
        next->bytes += freed.bytes;
    } else {
        if (arena->count == arena->capacity) {
            arena->capacity *= 2;
            arena->holes = realloc(arena->holes, arena->capacity * sizeof *arena->holes);
            if (!arena->holes)
                abort();
        }
        memmove(&arena->holes[low + 1], &arena->holes[low], (arena->count++ - low) * sizeof *arena->holes);
        arena->holes[low] = freed;
    }
    return CUDA_SUCCESS_VALUE;
}

static void arena_close(struct allocator *self)
{
    struct arena *arena = (struct arena *)self;
    if (arena->rt)
        arena->rt->cudaFree(arena->memory);
    free(arena->holes);
    free(arena);
}

int alloc_arena_open(const struct cuda_rt *rt, size_t capacity, struct allocator **ret_allocator)
{
    void *memory = PLAN_BASE;
    if (rt) {
        int rc = rt->cudaMalloc(&memory, capacity ? capacity : TENSOR_ALIGNMENT);
        if (rc != CUDA_SUCCESS_VALUE)
            return rc;
    }
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena || !(arena->holes = malloc(64 * sizeof *arena->holes)))
        abort();
    arena->base = (struct allocator){arena_take, arena_give, arena_close};
    arena->rt = rt;
    arena->memory = memory;
    arena->capacity = 64;
    arena->holes[arena->count++] = (struct hole){0, rt ? capacity : SIZE_MAX / 4};
    *ret_allocator = &arena->base;
    return CUDA_SUCCESS_VALUE;
}

size_t alloc_arena_extent(const struct allocator *arena)
{
    return ((const struct arena *)arena)->extent;
}
