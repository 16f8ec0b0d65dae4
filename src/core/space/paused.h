/* A paused region: the program owns its blocks, and no memory is behind them.

   Nouns. A *paused* block is the program's, and its pages have no memory. To *wake* a region is to make its paused blocks ordinary ones again.

   Why a state of its own and not a flag: every look for free memory, for idle pages and for places passes paused and busy
   extents by as it is. So none of them asks whether a region is paused, and a program without pauses pays nothing.

   How. While a region is paused its blocks are SG_EXTENT_PAUSED, all that was free is SG_EXTENT_BUSY, and holes stay. A
   free makes a paused block busy. Waking makes pages without memory holes, the rest of what is busy free, and paused
   blocks live. A page without memory has SG_PAGE_PAUSED for its handle.

   Why busy, and not free: free memory is looked for in the index, and what is busy stands in none. So the index has nothing of
   a paused region.

   Limits. A region with a pending block is not paused: its memory may be in use. Waking takes two extents for each that
   is busy, which sg_region_can_wake_locked() asks for.

   The states of an extent, and of a page, in a region that is paused and woken:

       before          paused      freed meanwhile   woken
       block           paused      busy              block; if it was freed: free, or part of a hole
       free, fragment  busy        busy              free, or part of a hole
       hole            hole        hole              hole
       busy (lost)     busy        busy              busy

       memory          none        none              memory if a paused block touches the page, else none

   For example, pages are of 2 MiB. A region has a block of 3 MiB, 1 MiB free behind it, and a hole. Paused, it has a
   paused extent, a busy one and the hole; both pages are SG_PAGE_PAUSED. The program frees the block: two busy extents.
   Waking finds no paused block on either page, so both join the hole. */
#ifndef SG_CORE_SPACE_PAUSED_H
#define SG_CORE_SPACE_PAUSED_H

#include "core/space/region.h"

/* Makes a region without pending blocks paused. The handles of its pages stay: the caller takes their memory. */
void sg_region_pause_locked(struct sg_region *region) SG_REQUIRES(lock);

/* True if enough extents are left to wake the region. */
bool sg_region_can_wake_locked(const struct sg_region *region) SG_REQUIRES(lock);

/* Wakes a paused region. Pages with memory serve again, and all that is free there is complete. Pages of
   SG_PAGE_PAUSED become holes: no paused block may stand there. */
void sg_region_wake_locked(struct sg_region *region) SG_REQUIRES(lock);

/* The paused block that starts at a position, or with _around the one that contains it; 0: there is none. */
uint32_t sg_region_paused_at_locked(const struct sg_region *region, uint32_t position) SG_REQUIRES(lock);
uint32_t sg_region_paused_around_locked(const struct sg_region *region, uint32_t position) SG_REQUIRES(lock);

/* A paused block is freed: nobody's, until the region wakes. */
void sg_region_release_paused_locked(struct sg_region *region, uint32_t block) SG_REQUIRES(lock);

/* The first page from `page` on that a paused block touches; the region's `pages`: there is no more. *id: an extent at or
   before the page, which the next call goes on with; it begins as the region's first. */
uint32_t sg_region_paused_page_locked(const struct sg_region *region, uint32_t page, uint32_t *id) SG_REQUIRES(lock);

/* The first paused block from extent `id` on, that included; 0: there is none. */
uint32_t sg_region_next_paused_locked(const struct sg_region *region, uint32_t id) SG_REQUIRES(lock);

#endif
