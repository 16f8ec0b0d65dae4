/* Carries plans out: pages are created, unmapped, mapped and released.

   Nouns. A plan and its runs are those of plan.h. A *gap* is a row of pages without memory in the plan's place. A
   page is *lost* if the driver would not unmap it: its address is never used again, because nobody knows what is
   there.

   How, in this order: runs of another size are released, and pages are created. Runs are unmapped where they were,
   everything is mapped at the place, and each gap gets access by one call. Creating comes before unmapping, because
   it is the step that fails most often, and then nothing has moved yet.

   Why everything is undone exactly: a request that fails must leave the device as it was, or each failure would cost
   memory. Undoing calls the driver too, so each undo is a replay step of its own, whose outcome stands in the trace
   if it failed.

   Limits. `grow` is held, and no other lock. The extents are busy, so nobody else looks at the pages. An undo that
   fails gives the pages of its run back to the driver; if even their place can't be unmapped, they are lost.

   For example, the plan of grow.h unmaps 31 pages at 0x7f0276000000 and creates 44, then maps 75 from 0x7f05f5400000
   on. The driver fails to map the 60th. The 59 are unmapped, the 31 are mapped at 0x7f0276000000 again, and the 44
   are released. */
#ifndef SG_CORE_REMAP_EXECUTE_H
#define SG_CORE_REMAP_EXECUTE_H

#include "core/remap/plan.h"

/* Carries the plan out as far as the driver lets it, and returns the driver's answer. CUDA_ERROR_OUT_OF_MEMORY with
   created < create: everything is as it was but for the pages created so far, which are still in hand.
   sg_plan_continue_with_idle_locked() may help then. After any other failure sg_plan_undo_growing() must follow. */
CUresult sg_plan_execute_growing(struct sg_plan *plan) SG_REQUIRES(grow);

/* Undoes a plan that failed half-way: everything but the pages created is as it was again. Takes `lock` for a moment
   where an undo fails, to emit that. */
void sg_plan_undo_growing(struct sg_plan *plan) SG_REQUIRES(grow);

/* True if a failed plan had its pages mapped, so that the driver refused access to them. With several gaps it may
   also have been the map after an earlier gap's access: both look alike from here. */
bool sg_plan_lacked_access_growing(const struct sg_plan *plan) SG_REQUIRES(grow);

/* Releases pages that were created and not used. */
void sg_plan_drop_created_growing(struct sg_plan *plan) SG_REQUIRES(grow);

/* Gives idle pages of about `bytes` back to the driver, from the last region first, and unmaps aliases that may go.
   Returns the bytes given back, which may exceed `bytes` by part of a page. Takes `lock` for moments. */
uint64_t sg_device_give_back_growing(struct sg_device *device, uint64_t bytes) SG_REQUIRES(grow);

/* Gives all idle pages of a place back. Returns their bytes. Takes `lock` for moments. */
uint64_t sg_device_give_back_place_growing(struct sg_device *device, enum sg_place place) SG_REQUIRES(grow);

/* True if a device has pages on another one. Their number changes under `grow` alone. Takes `lock`. */
bool sg_device_has_peer_pages(struct sg_device *device);

/* Gives all idle far pages back (overflow.h), the host's first. Takes `lock` for moments. */
void sg_device_give_back_far_growing(struct sg_device *device) SG_REQUIRES(grow);

/* Gives the page of a huge block that was freed back at once, if its work is complete. Nobody else has a use for a
   page of that size. Its addresses wait for the next huge block. Takes `grow` and `lock`. */
void sg_device_retire_huge(struct sg_device *device, struct sg_region *region);

#endif
