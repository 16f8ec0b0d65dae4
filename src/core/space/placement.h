/* Where pages are mapped, taken away and given back.

   Nouns. A *placement* is the place of a block that may hold holes, for which pages have to be had. A *source* is a
   run of free pages that may be cut out. A *busy* extent is one that its holder works on without the lock.

   How: sg_region_find_placement_locked() prices places and changes nothing. sg_region_claim_locked() makes one busy.
   Its holder maps pages, and ends by sg_region_commit_locked(), or by sg_region_abandon_locked(). A source goes the
   same way: cut, and done or undone. Limits: a claim needs a few extents to spare, so that its end never lacks any.

   Why all stretches are searched: a new page costs memory for good. A search costs microseconds, on a way that calls
   the driver anyhow.

   For example, a block needs 5 pages. Pages 0 and 1 are free, and pages 2 to 9 are a hole. The place at page 0 costs
   3 new pages, the one at page 3 costs 5: the first is chosen. With a source of 3 idle pages elsewhere none is
   created. Its claim makes pages 0 to 4 one busy extent, and leaves a hole of pages 5 to 9. If the driver fails, the
   abandon makes pages 0 and 1 free again and joins pages 2 to 4 with the hole. */
#ifndef SG_CORE_SPACE_PLACEMENT_H
#define SG_CORE_SPACE_PLACEMENT_H

#include "core/space/region.h"

/* The stream for which pages are sought. With `aliases` true, pages count too on which work is not complete, as far
   as that stream is ordered after it: they keep an alias (remap/page_alias.h). */
struct sg_taker {
    sg_slot slot;
    bool aliases;
    enum sg_place place; /* a far one: only such pages are sought, by the blocks that may have them (remap/overflow.h) */
};

/* A place for a block. An *open stretch* is a row of holes and of free ranges that the taker may use. */
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
/* Finds the cheapest place for `units` by `goal`, and changes nothing. Among equals it is the one in the longest open
   stretch, then the lowest; with `high` it is the highest. False: no open stretch is long enough. The region's free
   ranges must have been joined before (sg_device_drain_quick_lists_locked()), or pages would be missed. */
bool sg_region_find_placement_locked(const struct sg_region *region, uint32_t units, bool high,
    enum sg_placement_goal goal, struct sg_taker taker, struct sg_placement *ret) SG_REQUIRES(lock);

/* Makes the place busy, with the whole of each page that lacks memory. Nobody else takes, cuts or walks through it
   from here on, so `lock` may be dropped. Returns the busy extent; 0: too few extents are left, and nothing has
   changed. */
uint32_t sg_region_claim_locked(struct sg_region *region, const struct sg_placement *placement) SG_REQUIRES(lock);

/* Ends a claim, in one of two ways. The claim has set extents aside for both.

   Commit: all pages are mapped, and the block stands at its place. Returns the block's extent. The rest of the new
   pages is free, and belongs to `slot`, so that it joins what that stream frees.

   Abandon: pages without a handle are holes again, lost ones stay busy, and the others are free. These belong to
   `slot` after the time `now`, because the claim may have joined free ranges of several owners. */
uint32_t sg_region_commit_locked(struct sg_region *region, uint32_t busy, const struct sg_placement *placement,
    sg_slot slot) SG_REQUIRES(lock);
void sg_region_abandon_locked(struct sg_region *region, uint32_t busy, sg_slot slot, uint64_t now) SG_REQUIRES(lock);

/* Cuts up to `want` pages that may be unmapped now out of the highest free range that has any. Their memory is
   of `place`. Its time does not grow with the number of ranges. Returns how many; 0: there is none. They are
   one busy run from page *ret_first on, with the extent *ret_busy. */
uint32_t sg_region_cut_locked(struct sg_region *region, uint32_t want, enum sg_place place, uint32_t *ret_first,
    uint32_t *ret_busy) SG_REQUIRES(lock);

/* A run of free pages that could be cut out: complete ones. For a taker with aliases it has only pages that are not
   complete. */
struct sg_source {
    uint32_t extent; /* the free range that they are in */
    uint32_t first, pages;
};

/* Looks for a better source of `want` pages than *best, and puts it there. Zero pages in *best: there is none yet.
   The smallest source that is enough is best, or else the largest there is. So large ranges stay whole, which large
   blocks need next. False: this region has no better one. */
bool sg_region_find_source_locked(const struct sg_region *region, uint32_t want, struct sg_taker taker,
    struct sg_source *best) SG_REQUIRES(lock);

/* Cuts `want` pages out of a source, or all that it has if those are fewer. They begin at page *ret_first. Returns
   the busy extent; 0: too few extents are left. */
uint32_t sg_region_cut_source_locked(struct sg_region *region, const struct sg_source *source, uint32_t want,
    uint32_t *ret_first) SG_REQUIRES(lock);

/* Ends a cut. Done: the run is a hole, and the caller has cleared its handles. Undone: it is free again, as it was. */
void sg_region_cut_done_locked(struct sg_region *region, uint32_t busy) SG_REQUIRES(lock);
void sg_region_cut_undone_locked(struct sg_region *region, uint32_t busy) SG_REQUIRES(lock);

#endif
