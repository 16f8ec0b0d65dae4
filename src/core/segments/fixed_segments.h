/* Fixed segments by the driver's own cuMemAlloc, under PyTorch's rules (caching_allocator.h). It serves
   devices without virtual memory management, memory that must stay fit for legacy IPC, and users who ask for it. A
   device may come to it while the process runs. Its regions serve nothing then, and keep what is alive in them.

   The rules want memory in the middle of a decision, and no lock may be held while the driver is asked. The lock is
   dropped for that and taken again, which the rules allow. Segments that the rules give back are freed after the
   decision.

   A segment is of the context that was current when the driver gave it, and gone with it. Another thread may end that
   context at any time, and the driver may give the addresses to somebody else before the core knows. So an address that
   the driver gives out shows what is gone, and a segment is freed only while its context is kept from ending. */
#ifndef SG_CORE_SEGMENTS_FIXED_SEGMENTS_H
#define SG_CORE_SEGMENTS_FIXED_SEGMENTS_H

#include "core/state/segments.h"

/* The device with fixed segments one of whose segments holds `address`; NULL if none does. No lock needed. */
struct sg_device *sg_core_segments_at(const struct sg_core *core, CUdeviceptr address);

/* The rules' state for a device; NULL when out of host memory. */
struct sg_segments *sg_segments_create(struct sg_device *device);
void sg_segments_destroy(struct sg_segments *fixed);

/* As sg_core_fix(). Segments that the rules hold already stay. With `whole` none of them is divided any more, and a
   divided one serves nobody before it is whole. Takes the lock. */
bool sg_segments_begin(struct sg_device *device, bool whole);

/* As sg_core_malloc(), for a device with fixed segments. No lock is held. */
CUresult sg_segments_malloc(struct sg_device *device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret);

/* Whether `address` lies in a segment. Takes the lock. */
bool sg_segments_owns(struct sg_device *device, CUdeviceptr address);

/* The live block that starts at (or, with `inside`, holds) an address. CUDA_ERROR_INVALID_VALUE if none does. Takes the
   lock. */
CUresult sg_segments_block(struct sg_device *device, CUdeviceptr address, bool inside, struct sg_block_info *ret);

/* Notes that work of other contexts is on the live block that holds `address`, if there is one. Takes the lock. */
void sg_segments_used_cross_device(struct sg_device *device, CUdeviceptr address);

/* Frees the live block that starts at `address`, at once: the caller has waited. CUDA_ERROR_INVALID_VALUE if none
   does. */
CUresult sg_segments_free(struct sg_device *device, CUdeviceptr address, const struct sg_tag *tag, bool waited);

/* Gives all unsplit free segments back to the driver. Returns their bytes. Takes the lock. */
uint64_t sg_segments_trim(struct sg_device *device);

/* The two halves of that, for a device that has regions too: picks them, under `lock`; frees them, which takes it. */
uint64_t sg_segments_empty_locked(struct sg_device *device) SG_REQUIRES(lock);
void sg_segments_settle(struct sg_device *device);

/* Bytes of a segment for a request of so many. Under `lock`. */
uint64_t sg_segments_takes_locked(const struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock);

/* Bytes of segments in which nothing lives: a trim, or running out, would give them back. Under `lock`. */
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
