/* A plan: one place in a region, and the pages that will be mapped there, taken from elsewhere or created.

   Decisions are made under `lock` (plan.c) and carried out without it (execute.c), with the extents
   concerned busy in between. Only the holder of `grow` has a plan.

   For example, 300 MiB where 150 pages of 2 MiB lack memory and 50 more may be created: the plan takes runs of 60 and 40
   idle pages and creates 50. Does the driver refuse to map one, all 100 are mapped where they were, and the 50 go back. */
#ifndef SG_CORE_REMAP_PLAN_H
#define SG_CORE_REMAP_PLAN_H

#include "core/remap/page_alias.h"
#include "core/search/take.h"
#include "core/space/placement.h"

struct sg_plan {
    struct sg_device *device;
    struct sg_region *region;
    struct sg_placement placement;
    sg_slot slot;             /* for whom */
    bool aliases;             /* pages may get a second address */
    bool refused;             /* the driver has refused pages for it before */
    uint32_t busy;
    uint32_t create;          /* pages to create; the others of placement.new_pages come from runs */
    uint32_t first_page, last_page; /* of the busy extent */
    uint32_t created;         /* so far; handles[0 .. created) are theirs */
    uint32_t mapped;          /* where it failed: pages that had been mapped */
    CUmemGenericAllocationHandle *handles; /* placement.new_pages of them; the device's scratch memory, as the runs are */
    uint32_t accesses, unmaps, unmapped, releases; /* calls made, and pages unmapped by them, for the accounts */
    struct sg_page_run *runs;
    uint32_t run_count;
};

/* Chooses a place for what is wanted and where its pages come from, and makes them all busy. CUDA_ERROR_NOT_FOUND: no
   region has room for the addresses. CUDA_ERROR_OUT_OF_MEMORY: the limit forbids it and too few pages are free. Under
   the lock. */
CUresult sg_plan_make_locked(struct sg_device *device, struct sg_want want, struct sg_plan *ret) SG_REQUIRES(lock)
    SG_REQUIRES(grow);

/* The driver refused to create more: takes free pages for the rest. False if there are too few: nothing is left to do
   with the plan but to abandon it. */
bool sg_plan_continue_with_idle_locked(struct sg_plan *plan) SG_REQUIRES(lock) SG_REQUIRES(grow);

/* Ends a plan that was carried out; returns the block. Or undoes it. */
uint32_t sg_plan_commit_locked(struct sg_plan *plan) SG_REQUIRES(lock);
void sg_plan_abandon_locked(struct sg_plan *plan) SG_REQUIRES(lock);

#endif
