/* Where pages are mapped, taken away and given back.

   Nouns. A *placement* is the place of a block that may hold holes, for which pages have to be had. A *source* is a run of
   free pages that may be cut out. A *busy* extent is one that its holder works on without the lock.

   How: sg_region_find_placement_locked() prices places and changes nothing. sg_region_claim_locked() makes one busy. Its
   holder maps pages, and ends by sg_region_commit_locked(), or by sg_region_abandon_locked(). A source goes the same way:
   cut, and done or undone. Limits: a claim needs a few extents to spare, so that its end never lacks any.

   For example, a block of 5 pages where 2 pages are free and a hole of 8 follows them: the place at the free range's
   begin costs 3 new pages, and one in the middle of the hole 5. With a source of 3 idle pages elsewhere none is created. */
#ifndef SG_CORE_SPACE_PLACEMENT_H
#define SG_CORE_SPACE_PLACEMENT_H

#include "core/space/region.h"

/* For whom pages are sought. With `aliases`, pages count too that the stream may use although work on them is not
   complete. */
struct sg_taker {
    sg_slot slot;
    bool aliases;
};

/* Where a block of `slot` could be put by mapping pages. The cheapest place; of equals, the one in the longest open
   stretch, then the lowest, or simply the highest. False: none. */
struct sg_placement {
    uint32_t begin, units; /* of the block */
    uint32_t extent;       /* the free range or hole that holds `begin` */
    uint32_t new_pages;
    uint32_t whole; /* whole free pages that it uses up and that could have been taken elsewhere */
};
enum sg_placement_goal {
    SG_FEWEST_NEW_PAGES,  /* the fewest new pages: least work */
    SG_FEWEST_PAGES_TOTAL /* the fewest new and whole free pages together: what may still succeed when no page is to be
                             had */
};
bool sg_region_find_placement_locked(const struct sg_region *region, uint32_t units, bool high,
    enum sg_placement_goal goal, struct sg_taker taker, struct sg_placement *ret) SG_REQUIRES(lock);

/* Makes the place busy, with the whole of every page it needs. Returns the busy extent; 0: no extent is to
   be had, and nothing was changed. */
uint32_t sg_region_claim_locked(struct sg_region *region, const struct sg_placement *placement) SG_REQUIRES(lock);

/* Ends a claim. Commit: its pages are mapped, and the block stands in it; returns the block. Abandon: pages without
   a handle are holes again, and lost ones stay busy. Extents for both were set aside by the claim. What is left over
   of new pages belongs to `slot`, for whom the place was found. So does, at `now`, what an abandoned claim had
   joined. */
uint32_t sg_region_commit_locked(struct sg_region *region, uint32_t busy, const struct sg_placement *placement,
    sg_slot slot) SG_REQUIRES(lock);
void sg_region_abandon_locked(struct sg_region *region, uint32_t busy, sg_slot slot, uint64_t now) SG_REQUIRES(lock);

/* Cuts up to `want` whole, unpinned, complete free pages out of the highest free range that has any, in a time that does
   not grow with the number of ranges. Returns how many; they are one busy run, which starts at page *ret_first and whose
   extent is *ret_busy. 0: there is none. */
uint32_t sg_region_cut_locked(struct sg_region *region, uint32_t want, uint32_t *ret_first, uint32_t *ret_busy)
    SG_REQUIRES(lock);

/* Adjacent free pages that could be cut: complete ones. For a taker with aliases, only pages that are not complete. */
struct sg_source {
    uint32_t extent; /* the free range that they are in */
    uint32_t first, pages;
};

/* Looks for a better source of `want` pages than *best (none: no pages), and puts it there: the smallest that is
   enough, or else the largest there is. So large ranges stay whole, which is what large blocks need next. False: there
   is none. */
bool sg_region_find_source_locked(const struct sg_region *region, uint32_t want, struct sg_taker taker,
    struct sg_source *best) SG_REQUIRES(lock);

/* Cuts at most `want` pages out of it, which begin at page *ret_first. Returns the busy extent; 0: no extent is to be
   had. */
uint32_t sg_region_cut_source_locked(struct sg_region *region, const struct sg_source *source, uint32_t want,
    uint32_t *ret_first) SG_REQUIRES(lock);

/* Ends a cut: the run is a hole now, or free again. The handles are the caller's to clear first in the former case. */
void sg_region_cut_done_locked(struct sg_region *region, uint32_t busy) SG_REQUIRES(lock);
void sg_region_cut_undone_locked(struct sg_region *region, uint32_t busy) SG_REQUIRES(lock);

#endif
