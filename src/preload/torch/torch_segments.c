/* Linear probing. A deleted slot may serve again; it is no end of a chain, so a reader without the lock goes on past
   it. */
#include "torch/torch_segments.h"

#include "process/process.h"
#include "segalloc/segalloc.h"

/* A table by address, with linear probing. A segment takes 2 MiB or more, so that 64 thousand are 128 GiB; what finds no
   room is taken for tensors. Untouched until there is one. */
enum { BITS = 16, SLOTS = 1 << BITS, MOST = SLOTS / 4 * 3 };
enum { EMPTY = 0, DELETED = 1 }; /* no address of memory */

static struct {
    struct segment {
        _Atomic uintptr_t address;
        size_t bytes;
        int device;
    } slot[SLOTS];
    int filled; /* slots that are not empty */
    struct sg_torch_segments of[SG_DEVICES_MAX];
} segments; /* guarded by SG_LOCK_TORCH; addresses are read without */

atomic_bool sg_torch_segments_seen;

static unsigned segment_slot(uintptr_t address)
{
    return (unsigned)(((uint64_t)address >> 9) * 0x9E3779B97F4A7C15u >> (64 - BITS));
}

/* A chain ends at an empty slot, not at a deleted one. */
static struct segment *find_segment(const void *address)
{
    uintptr_t wanted = (uintptr_t)address;
    for (unsigned at = segment_slot(wanted), i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS) {
        uintptr_t found = atomic_load_explicit(&segments.slot[at].address, memory_order_acquire);
        if (found == wanted)
            return &segments.slot[at];
        if (found == EMPTY)
            return NULL;
    }
    return NULL;
}

bool sg_torch_is_segment(const void *address)
{
    return address && atomic_load_explicit(&sg_torch_segments_seen, memory_order_relaxed) && find_segment(address);
}

static int segment_device(void)
{
    const struct sg_driver *driver = sg_process_driver();
    CUdevice device;
    return driver && driver->ctx_get_device(&device) == CUDA_SUCCESS && device < SG_DEVICES_MAX ? (int)device : 0;
}

/* The first free slot of the chain. A full table forgets the segment, whose free then counts as a tensor's. */
void sg_torch_segment_made(const void *address, size_t bytes)
{
    int device = segment_device();
    unsigned at = segment_slot((uintptr_t)address);
    sg_process_lock(SG_LOCK_TORCH);
    while (atomic_load_explicit(&segments.slot[at].address, memory_order_relaxed) > DELETED)
        at = (at + 1) % SLOTS;
    bool was_empty = atomic_load_explicit(&segments.slot[at].address, memory_order_relaxed) == EMPTY;
    if (!was_empty || segments.filled < MOST) {
        struct sg_torch_segments *of = &segments.of[device];
        segments.filled += was_empty;
        segments.slot[at].bytes = bytes;
        segments.slot[at].device = device;
        atomic_store_explicit(&segments.slot[at].address, (uintptr_t)address, memory_order_release);
        of->count++;
        of->bytes += bytes;
        of->made++;
        of->made_bytes += bytes;
    }
    sg_process_unlock(SG_LOCK_TORCH);
}

/* Looked for twice: without the lock, which is the answer for nearly every free, and again with it. */
bool sg_torch_segment_gone(const void *address)
{
    if (!sg_torch_is_segment(address))
        return false;
    sg_process_lock(SG_LOCK_TORCH);
    struct segment *segment = find_segment(address);
    if (segment) {
        struct sg_torch_segments *of = &segments.of[segment->device];
        of->count--;
        of->bytes -= segment->bytes;
        of->gone++;
        of->gone_bytes += segment->bytes;
        atomic_store_explicit(&segment->address, DELETED, memory_order_release);
    }
    sg_process_unlock(SG_LOCK_TORCH);
    return segment;
}

/* A copy under the lock, so that count and bytes belong together. */
struct sg_torch_segments sg_torch_segments_of(int device)
{
    struct sg_torch_segments of = {0};
    if (device < 0 || device >= SG_DEVICES_MAX)
        return of;
    sg_process_lock(SG_LOCK_TORCH);
    of = segments.of[device];
    sg_process_unlock(SG_LOCK_TORCH);
    return of;
}
