/* Pieces of the core in order of addresses become segments of PyTorch's snapshot: a run of neighbours is a segment,
   each piece a block. */
#include "torch/torch_snapshot.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "segalloc/segalloc.h"
#include "core/core.h"
#include "torch/torch_cxx.h"
#include "torch/torch_segments.h"

/* BlockInfo and SegmentInfo; SnapshotInfo begins with a vector of the latter. Source: c10/core/CachingDeviceAllocator.h in the
   wheels of PyTorch 2.11.0 and 2.15.0, c10/cuda/CUDACachingAllocator.h in that of 2.9.1. */
struct cxx_vector {
    char *begin, *end, *limit;
};

struct block_info {
    size_t bytes, requested;
    int32_t gc_counter;
    bool allocated, active;
    void *context[2]; /* std::shared_ptr */
};

struct segment_info {
    int8_t device;
    int32_t registration; /* before 2.11 nothing is there */
    size_t address, total, requested, allocated, active;
    void *stream;
    bool is_large, is_expandable;
    uint64_t pool[2];
    struct cxx_vector blocks;
    void *context[2];
};
_Static_assert(sizeof(struct block_info) == 40 && sizeof(struct segment_info) == 120, "as PyTorch has them");

/* Pieces of a device in the order of addresses, to be freed; PyTorch's segments are no tensors. */
static struct segalloc_piece *read_pieces(int device, size_t *ret_count)
{
    enum { MORE = 64 }; /* other threads go on */
    struct segalloc_piece *list = NULL;
    size_t room = 0, count = segalloc_pieces(device, NULL, 0);
    while (count > room) {
        room = count + count / 8 + MORE;
        struct segalloc_piece *longer = realloc(list, room * sizeof *list);
        if (!longer)
            break;
        list = longer;
        count = segalloc_pieces(device, list, room);
    }
    *ret_count = list && count <= room ? count : 0;
    return list;
}

static bool is_shown(const struct segalloc_piece *piece)
{
    return !sg_torch_is_segment((const void *)(uintptr_t)piece->address);
}

/* How many of the pieces, all of which are shown, follow each other in memory. */
static size_t run_length(const struct segalloc_piece *first, size_t count)
{
    size_t length = 1;
    while (length < count && is_shown(&first[length]) && first[length].small == first->small &&
        first[length].address == first[length - 1].address + first[length - 1].bytes)
        length++;
    return length;
}

/* push_back() of a std::vector, in memory of PyTorch's runtime, which will destroy it. Room is doubled. Members are
   pointers and numbers, so they may be moved as bytes. */
static bool vector_append(struct cxx_vector *vector, const void *item, size_t bytes)
{
    if (vector->end == vector->limit) {
        size_t used = (size_t)(vector->end - vector->begin), size = used * 2 + bytes;
        char *memory = sg_torch_new(size);
        if (!memory)
            return false;
        if (used)
            memcpy(memory, vector->begin, used); /* its members can be moved so: pointers and numbers */
        if (vector->begin)
            sg_torch_delete(vector->begin);
        *vector = (struct cxx_vector){memory, memory + used, memory + size};
    }
    memcpy(vector->end, item, bytes);
    vector->end += bytes;
    return true;
}

/* One segment with its blocks, for pieces that follow each other. For example, pieces of 2 MiB in use, 1 MiB free and 5
   MiB in use make a segment of 8 MiB. It has three blocks, and 7 MiB of it are active. */
static void snapshot_add_run(struct cxx_vector *segments, int device, const struct segalloc_piece *first, size_t count)
{
    struct segment_info segment = {.device = (int8_t)device, .registration = -1, .address = first->address,
        .is_large = !first->small, .is_expandable = true};
    for (const struct segalloc_piece *piece = first; piece < first + count; piece++) {
        const struct block_info block = {.bytes = piece->bytes, .requested = piece->requested,
            .allocated = piece->state == SEGALLOC_PIECE_ALLOCATED, .active = piece->state != SEGALLOC_PIECE_FREE};
        if (!vector_append(&segment.blocks, &block, sizeof block))
            break;
        segment.total += block.bytes;
        segment.active += block.active ? block.bytes : 0;
        segment.allocated += block.allocated ? block.bytes : 0;
        segment.requested += block.allocated ? block.requested : 0;
        if (block.allocated && !segment.stream)
            segment.stream = (void *)(uintptr_t)piece->stream;
    }
    if (!vector_append(segments, &segment, sizeof segment) && segment.blocks.begin)
        sg_torch_delete(segment.blocks.begin);
}

/* Runs of pieces that PyTorch's own segments do not have already. */
void sg_torch_snapshot_add(void *snapshot)
{
    for (int device = 0; device < SG_DEVICES_MAX; device++) {
        size_t count, length;
        struct segalloc_piece *list = read_pieces(device, &count);
        for (size_t i = 0; i < count; i += length) {
            bool shown = is_shown(&list[i]);
            length = shown ? run_length(&list[i], count - i) : 1;
            if (shown)
                snapshot_add_run(snapshot, device, &list[i], length);
        }
        free(list);
    }
}
