/* A plan: one place in a region, and the pages that will be mapped there, moved from elsewhere or created.

   Nouns. The *place* is what a block needs, with holes in it (space/placement.h). A *run* is a row of idle pages that
   are cut out of one free range. A run *transfers* if its pages have the size that the place needs. Otherwise they
   are released, and pages of the right size are created from what that frees. A run of *aliases* keeps its old
   address for now (page_alias.h).

   Why decided and carried out apart: a driver call may take milliseconds, so none is made under `lock`. Decisions
   need everything as it is at one moment. So a plan is made under `lock`, which makes the place and the runs busy
   extents. It is carried out without `lock` (execute.h), and committed or abandoned under it. Others allocate
   meanwhile, and pass busy extents by.

   How runs are chosen: the smallest row of idle pages that is enough, else the largest, until there are enough pages.
   A stream that shares the device takes pages first that the others could not use: those that leave an alias.

   Limits. Only the holder of `grow` has a plan. Pinned pages never stand in one.

   For example, the case of grow.h: 300 MiB lack 75 pages of 4 MiB, of which 31 must move. The idle rows have 50 pages
   each, and of two alike the later one is taken. Its last 31 pages, from address 0x7f0276000000 on, become the one
   run, and `create` is 44. After the commit the run is a hole, and its first page has moved to 0x7f0600400000. Were
   the driver to refuse a map half-way, all 31 would be mapped at 0x7f0276000000 again, and the 44 would go back to
   it. */
#ifndef SG_CORE_REMAP_PLAN_H
#define SG_CORE_REMAP_PLAN_H

#include "core/remap/page_alias.h"
#include "core/search/take.h"
#include "core/space/placement.h"

/* Where the pages of a plan for overflow are (overflow.h); zero for any other plan, whose pages all are the device's. */
struct sg_plan_parts {
    bool overflow;
    uint32_t create[SG_PLACES]; /* pages to create at each place, in this order; together the plan's `create` */
    uint32_t moved[SG_PLACES];  /* pages to move, likewise */
    uint32_t most[SG_PLACES];   /* how many far ones may be created */
};

/* A plan under way. It is the caller's, on its stack; `handles` and `runs` are the device's scratch memory, which
   outlasts it. */
struct sg_plan {
    struct sg_device *device;
    struct sg_region *region; /* of the place */
    struct sg_placement placement;
    sg_slot slot;                   /* the stream that asks; 0: unknown */
    bool aliases;                   /* pages may leave an alias */
    bool refused;                   /* the driver has refused pages for this request before */
    uint32_t busy;                  /* the extent of the place */
    uint32_t first_page, last_page; /* of that extent */
    uint32_t create;                /* pages to create; the others of placement.new_pages come from runs */
    uint32_t created;               /* so far */
    struct sg_plan_parts parts;     /* by place */
    uint32_t mapped;                /* pages of the place that have been mapped, where a later call failed */
    /* placement.new_pages of them: those created first, then those of the runs. After the commit they are the numbers
       of the pages at which these now are. */
    CUmemGenericAllocationHandle *handles;
    uint32_t accesses, unmaps, unmapped, releases; /* calls made, and pages unmapped by them, for the accounts */
    struct sg_page_run *runs;
    uint32_t run_count;
};

/* Chooses a place for what is wanted and where its pages come from, and makes them all busy. Joins all free memory
   first. CUDA_ERROR_NOT_FOUND: no region has addresses for it. CUDA_ERROR_OUT_OF_MEMORY: the limit forbids it and too
   few pages are idle, or there is no host memory. On failure nothing is busy, and *ret stays as it was. */
CUresult sg_plan_make_locked(struct sg_device *device, struct sg_want want, struct sg_plan *ret) SG_REQUIRES(lock)
    SG_REQUIRES(grow);

/* Parts the pages that a plan for overflow creates. `near` are the device's. The others go to the far places,
   as many to each as may be, but none to those before `first`. False: that is more than may be, and nothing has
   changed. */
bool sg_plan_part(struct sg_plan *plan, uint32_t near, enum sg_place first);

/* The place at which the page in hand of that index is, of those created first and then of those moved. */
enum sg_place sg_plan_place_of(const struct sg_plan *plan, uint32_t index);

/* Takes idle pages for the rest after the driver refused to create more. The pages created so far stay in hand.
   False: there are too few, and the plan can only be abandoned. */
bool sg_plan_continue_with_idle_locked(struct sg_plan *plan) SG_REQUIRES(lock) SG_REQUIRES(grow);

/* Ends a plan. Commit: it was carried out, and the block's extent is returned. Abandon: execute.h has undone it, or
   it was never carried out. The place and the runs are as they were. */
uint32_t sg_plan_commit_locked(struct sg_plan *plan) SG_REQUIRES(lock);
void sg_plan_abandon_locked(struct sg_plan *plan) SG_REQUIRES(lock);

#endif
