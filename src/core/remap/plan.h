/* A plan: one place in a region, and the pages that will be mapped there, taken from elsewhere or created.

   Decisions are made under `lock` (plan.c) and carried out without it (execute.c), with the extents
   concerned busy in between. Only the holder of `grow` has a plan. */
#ifndef SG_PLAN_H
#define SG_PLAN_H

#include "device.h"

struct sg_page_run { /* whole pages being taken from one place, in address order */
    struct sg_region *region;
    uint32_t first, pages, busy;
    bool alias;    /* its pages keep this address for now */
    bool unmapped; /* its pages are elsewhere, or given back */
    bool lost;     /* and its addresses cannot be used again */
};

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

/* Ends a plan that was carried out; returns the block. Or undoes it. */
uint32_t sg_plan_commit_locked(struct sg_plan *plan) SG_REQUIRES(lock);
void sg_plan_abandon_locked(struct sg_plan *plan) SG_REQUIRES(lock);

#endif
