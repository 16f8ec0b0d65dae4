/* Carries plans out: pages are created, unmapped, mapped and released. No lock but `grow` is held here, and
   what is touched is busy, so nobody else looks at it.

   Every step that fails is undone in steps of its own, so that a replay can fail in the same place.

   For example, a plan unmaps 100 pages at their old place, creates 50 and maps 150 at the new one. The driver fails to map
   the 120th: 119 pages are unmapped, the 100 go back to where they were, and the 50 are released. */
#ifndef SG_CORE_REMAP_EXECUTE_H
#define SG_CORE_REMAP_EXECUTE_H

#include "core/remap/plan.h"

/* Carries the plan out, as far as the driver lets it. CUDA_ERROR_OUT_OF_MEMORY with pages that were not created:
   everything but those created so far (which are still in hand) is as it was, and sg_plan_continue_with_idle_locked() may
   help. No lock held. */
CUresult sg_plan_execute_growing(struct sg_plan *plan) SG_REQUIRES(grow);

/* After another failure: everything but the pages created is as it was again. No lock held. */
void sg_plan_undo_growing(struct sg_plan *plan) SG_REQUIRES(grow);

/* Of a plan that the driver has failed: whether the pages were there and mapped, so that it was access which it did not
   give (or, where it was to be given in several calls, the first page after them). No lock needed. */
bool sg_plan_lacked_access_growing(const struct sg_plan *plan) SG_REQUIRES(grow);

/* Releases pages that were created and not used. No lock held. */
void sg_plan_drop_created_growing(struct sg_plan *plan) SG_REQUIRES(grow);

/* Gives up to `bytes` of whole free pages back to the driver, from the last regions first. Holds `grow`. Returns how
   much. */
uint64_t sg_device_give_back_growing(struct sg_device *device, uint64_t bytes) SG_REQUIRES(grow);

/* A huge block was freed. Its page goes back at once: it is of no use to anybody else. Its addresses wait for the next
   one. No lock held. */
void sg_device_retire_huge(struct sg_device *device, struct sg_region *region);

#endif
