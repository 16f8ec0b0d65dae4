/* Fixed segments: memory of the driver's own cuMemAlloc, under PyTorch's rules (pytorch/caching_allocator.h).

   Nouns. A *segment* is one cuMemAlloc. The *rules* are those by which PyTorch's allocator chooses, splits and gives
   back segments. A *whole* segment serves one block at a time. The *pool* of a context has its segments.

   Why: a device without virtual memory management has no pages to move. Legacy IPC cannot give mapped memory away.
   Some users ask for it (expandable_segments:False). A device may also change to segments while the process runs. Its
   regions serve nothing new then, and keep the blocks that are alive in them. With the option `contiguous` a device has both:
   blocks from that size on are whole segments, all others stand in regions.

   How. The rules want memory in the middle of a decision, and no lock may be held while the driver is asked. The lock
   is dropped for that and taken again, which the rules allow. Segments that the rules give back are freed after the
   decision.

   Limits. No page moves, and no memory is pending: a free here takes effect at once, so the caller waits first. A
   segment is of the context that was current when the driver gave it, and gone with it. Another thread may end that
   context at any time, and the driver may give the addresses to somebody else before the core knows. So an address
   that the driver gives out shows which segments are gone. A segment is freed only while its context is kept from
   ending.

   For example, a program asks for 3 MiB. PyTorch's rules take a segment of 20 MiB for sizes from 1 to 10 MiB, so
   cuMemAlloc is asked for 20. The block stands at its begin, and 17 MiB are free behind it. A second request of 3 MiB
   takes from these. With `whole` it would get a segment of its own, which another process can open by an IPC handle. */
#ifndef SG_CORE_SEGMENTS_FIXED_SEGMENTS_H
#define SG_CORE_SEGMENTS_FIXED_SEGMENTS_H

#include "core/state/segments.h"

/* The device one of whose segments holds `address`; NULL: none does. Takes `lock` of each device that has segments. */
struct sg_device *sg_core_segments_at(const struct sg_core *core, CUdeviceptr address);

/* Makes the state of a device with segments; NULL: no host memory. The caller ends it by sg_segments_destroy(), which
   frees no segment. */
struct sg_segments *sg_segments_create(struct sg_device *device);
void sg_segments_destroy(struct sg_segments *fixed);

/* Has a device serve segments from here on, as sg_core_fix() says. Segments that the rules hold already stay. With
   `whole` none of them is divided any more, and a divided one serves nobody before it is whole. False: no host
   memory. Takes `lock`. */
bool sg_segments_begin(struct sg_device *device, bool whole);

/* Allocates as sg_core_malloc() does, on a device with fixed segments. CUDA_ERROR_OUT_OF_MEMORY: the limit, the
   driver or the host has no more. Takes `lock`, and drops it to call the driver. */
CUresult sg_segments_malloc(struct sg_device *device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret);

/* True if `address` lies in a segment. Takes `lock`. */
bool sg_segments_owns(struct sg_device *device, CUdeviceptr address);

/* Describes the live block that starts at an address, or with `inside` holds it. CUDA_ERROR_INVALID_VALUE: none does.
   Takes `lock`. */
CUresult sg_segments_block(struct sg_device *device, CUdeviceptr address, bool inside, struct sg_block_info *ret);

/* Notes that work of other contexts is on the live block that holds `address`, if there is one. Takes `lock`. */
void sg_segments_used_cross_device(struct sg_device *device, CUdeviceptr address);

/* Frees the live block that starts at `address`, at once: the caller has waited. CUDA_ERROR_INVALID_VALUE if none
   does. */
CUresult sg_segments_free(struct sg_device *device, CUdeviceptr address, const struct sg_tag *tag, bool waited);

/* Gives all free segments that are not split back to the driver, and waits for their work as cuMemFree does. Returns
   their bytes. Takes `lock`. */
uint64_t sg_segments_trim(struct sg_device *device);

/* The two halves of that, for a device that has regions too: picks them, under `lock`; frees them, which takes it. */
uint64_t sg_segments_empty_locked(struct sg_device *device) SG_REQUIRES(lock);
void sg_segments_settle(struct sg_device *device);

/* The bytes of the segment that the rules would take for a request of `bytes`. */
uint64_t sg_segments_takes_locked(const struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock);

/* Bytes of segments in which nothing lives: a trim, or running out, would give them back. */
uint64_t sg_segments_idle_locked(const struct sg_device *device) SG_REQUIRES(lock);
/* Those of them that go back without a wait: no work of their contexts is left. Asks the driver; takes the lock. */
uint64_t sg_segments_idle_now(struct sg_device *device);

/* The driver has given out [address, address + bytes). Segments held there are gone with their context, whose end
   has not reached the core yet. */
void sg_segments_given_out_locked(struct sg_segments *fixed, CUdeviceptr address, uint64_t bytes) SG_REQUIRES(lock);

/* The driver has freed the segments of a context, in which nothing lives. */
void sg_segments_forget_locked(struct sg_segments *fixed, CUcontext context) SG_REQUIRES(lock);

/* Frees the live blocks of `context` (NULL: all), and forgets the segments that its end has freed. */
void sg_segments_context_gone(struct sg_device *device, CUcontext context);

#endif
