/* A region: one reservation of device addresses, tiled by extents in address order.

   Positions and sizes are in units of SG_UNIT bytes. States of an extent:

      - block, or pending: freed, but queued work may still use it;
      - free range; hole: no page is mapped;
      - busy: pages are being mapped or taken away outside the lock;
      - SG_EXTENT_DEFERRED: free, but kept whole for the next request of its size (deferred coalescing);
      - SG_EXTENT_FRAGMENT: a free piece, shorter than a bucket of addresses, beside a range that it cannot join yet.

   A free range has an *owner*, the slot of the stream that its block was allocated for (0: nobody), and a time. It is ordered after
   all that the owner was given before that time (stream_clock.h). The owner may use it at once; another stream may use
   it once it is ordered after the time. Neighbours of one owner are one range, with the later time. `after` has the
   same knowledge page by page. So another stream can use the older parts of a range, and complete pages can be moved.

   Invariants, checked by sg_region_broken() (check.h):

      - the extents tile [0, units) without gap or overlap;
      - neighbours differ in state unless both are blocks, pending or fragments, or free for different streams;
      - holes begin and end at page boundaries, and a page has a handle exactly where no hole covers it (busy extents
        aside);
      - every free range is in `free_tree` under the bucket of its first unit, and whole_free counts the pages that lie
        entirely inside free ranges.

   A bucket of addresses is 1 << bucket_shift units, at most the smallest block of the region. At most one block and one
   free range start in any bucket, so plain arrays serve as dictionaries.

   No function here calls the driver, waits or locks. The device's `lock` is held, as SG_ASSERT_REGION_LOCK() checks. */
#ifndef SG_REGION_H
#define SG_REGION_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "lock.h"
#include "lock_roles.h"
#include "max_tree.h"
#include "stream_clock.h"
#include "tuning.h"

enum { SG_UNIT_SHIFT = 9, SG_UNIT = 1 << SG_UNIT_SHIFT }; /* 512 B: PyTorch's smallest block, and the alignment of
                                                             cudaMalloc's users */

enum sg_extent_state {
    SG_EXTENT_UNUSED,
    SG_EXTENT_FREE,
    SG_EXTENT_BLOCK,
    SG_EXTENT_PENDING,
    SG_EXTENT_HOLE,
    SG_EXTENT_BUSY,
    SG_EXTENT_DEFERRED,
    SG_EXTENT_FRAGMENT
};

struct sg_extent {
    uint32_t begin, size;  /* units */
    uint32_t prev, next;   /* by address; 0: none. Of unused extents, next is the next unused one */
    uint32_t state;        /* enum sg_extent_state */
    union {
        uint32_t stream;   /* tag of a block, index in the device's list */
        uint32_t owner;    /* free, deferred, fragment: slot of a stream, 0: nobody */
    };
    uint64_t requested;    /* bytes asked for, of a block or pending block */
    union {
        uint64_t alloc_seq; /* block: the time of its allocation, differs for every allocation of the process */
        uint64_t seq;      /* free, deferred, fragment: comes after what the owner was given before; pending: what
                              `users_mask` was given */
    };
    uint64_t context;      /* block: the CUcontext that was current when it was allocated; pending: whether its work is
                              done */
    union {
        uint64_t event;                    /* for who keeps other things in extents */
        uint64_t users_mask;               /* block: bits of the slots on which it is used besides its own, bit 0: on
                                              others; pending: bits of those it has to wait for, bit 0: for the whole
                                              context */
        struct { uint32_t less, more; } in_size_class; /* free: its neighbours in the list of its class */
    };
    union {
        uint32_t later;    /* pending: the next one in order */
        uint32_t idle_before; /* block: how long its stream had been given nothing when it was allocated
                              (sg_clocks_idle_before()) */
    };
    uint32_t region;       /* index of the region in its device */
};
_Static_assert(sizeof(struct sg_extent) == 64, "an extent is one cache line");

/* In place of a pending block's context: that has done its work, others may not have. */
enum { SG_OWN_CONTEXT_IS_DONE = 1 };

/* The extents of one device, addressed by index so that links are short and the array can move nowhere. */
struct sg_extents {
    struct sg_extent *extent; /* [0] is never used: 0 means none */
    uint32_t live, capacity;
    uint32_t used, unused; /* high-water mark; first of the list of unused ones below it */
    uint32_t cells;        /* extents [capacity, capacity + cells): see struct sg_region */
    bool cells_taken;      /* one region has them */
#ifdef SG_LOCK_CHECKS
    const struct sg_lock *lock; /* of the device, which guards its regions; NULL: a test's, without one */
#endif
    struct sg_extent_site_locked { /* of blocks, by the number of their extent: as in struct sg_tag */
        uint32_t site, phase;
    } * sites; /* NULL: no site was ever noted */
};

/* The device's `lock` is held by the calling thread, in builds that check it (lock.h). */
#ifdef SG_LOCK_CHECKS
#define SG_ASSERT_EXTENTS_LOCK(extents)      \
    do {                                     \
        if ((extents)->lock)                 \
            SG_ASSERT_HELD((extents)->lock); \
    } while (0)
#else
#define SG_ASSERT_EXTENTS_LOCK(extents) ((void)0)
#endif
#define SG_ASSERT_REGION_LOCK(region) SG_ASSERT_EXTENTS_LOCK((region)->extents)

/* The lock that guards all regions whose extents these are. */
static inline void sg_extents_guard(struct sg_extents *extents, const struct sg_lock *lock)
{
#ifdef SG_LOCK_CHECKS
    extents->lock = lock;
#else
    (void)extents, (void)lock;
#endif
}

/* Notes who asked for a block. Without host memory for that it stays unknown. */
void sg_extents_note_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
    SG_REQUIRES(lock); /* the slow half */
static inline void sg_extent_set_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
    SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    if (__builtin_expect(extents->sites || site || phase, 0))
        sg_extents_note_site_locked(extents, extent, site, phase);
}
static inline struct sg_extent_site_locked sg_extent_site_locked(const struct sg_extents *extents, uint32_t extent)
    SG_REQUIRES(lock)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    return extents->sites ? extents->sites[extent] : (struct sg_extent_site_locked){0, 0};
}

/* Sets the array aside, which is memory only where it is used. False: there is not even address space for it. */
bool sg_extents_init(struct sg_extents *extents);
void sg_extents_fini(struct sg_extents *extents);

/* A quick list: blocks of one size that were freed last and have not coalesced yet. A training loop asks for 16 to
   20 sizes again and again; a quick list answers them without the index. It keeps SG_QUICK_DEPTH blocks, and one more
   for each SG_QUICK_SHARE extents: coalescing reads neighbours, which are in no cache then. */
enum { SG_QUICK_SIZES = SG_SMALL_BYTES / SG_UNIT, SG_QUICK_OWNERS = 8,
    SG_QUICK_LISTS = SG_QUICK_SIZES * SG_QUICK_OWNERS };
struct sg_quick_list {
    uint32_t count, units, top; /* top: extent, the others follow by `later` */
    uint32_t owner;             /* of all in it */
};

/* Free ranges of one owner by size, where the smallest that fits is wanted. */
enum { SG_SIZE_CLASSES = 32 << SG_SIZE_CLASS_BITS };
struct sg_lists {
    uint64_t any[SG_SIZE_CLASSES / 64]; /* bit set: the list isn't empty */
    uint32_t first[SG_SIZE_CLASSES];
};

/* Where in free memory a block is put (docs/experiments/placement.md). In the regular region, with few large blocks,
   the smallest range keeps the most pages whole. In the small region the lowest range does, and it costs less. */
enum sg_fit { SG_FIT_LOWEST, SG_FIT_SMALLEST };

/* What is behind the addresses, page by page. */
struct sg_region_memory {
    uint32_t mapped; /* pages with a handle */
    uint32_t pinned; /* pages that may not move */
    uint32_t stale;  /* pages of addresses behind which there is memory that has another address by now */
    CUmemGenericAllocationHandle *handle; /* page -> physical memory, SG_PAGE_LOST or SG_PAGE_STALE; 0: none */
    uint8_t *pin;                         /* page -> may not move: sum of enum sg_pin */
    uint64_t *alias_target;               /* page that is a stale address -> where its memory is now: region and page */
    struct sg_after *after;               /* page -> what all that is free in it comes after, at most */
};

/* From a position to the extent there. */
struct sg_region_lookup {
    /* Cells: whatever begins in units [2 i, 2 i + 2) has extent cell_first + i, if that was unused when it came to be.
       So most blocks of the small region are found with one look at memory where the table below costs two, one after
       the other. */
    uint32_t cell_first, cells;
    uint32_t whole_free;          /* pages entirely inside free ranges */
    struct sg_max_tree free_tree; /* bucket -> size of the free range that starts there */
    struct sg_max_tree hole_tree; /* page -> pages of the hole that starts there */
    uint32_t *free_at, *block_at; /* bucket -> extent, which may be another by now: compare its state and bounds */
    uint32_t *hole_at;            /* page -> extent */
    void *tables;                 /* all tables of the region by page or bucket */
    size_t tables_bytes;
};

/* Free ranges by whose they are. */
struct sg_region_owned {
    bool listed;         /* the lists are kept: of SG_FIT_SMALLEST, and where there is more than one owner */
    bool ordered;        /* something in it has, or had, an owner: see `after` */
    const struct sg_stream_clocks *clocks; /* NULL: nothing has an owner */
    uint64_t owners;     /* bit set: a free range has had this owner */
    uint64_t coalesced_version; /* clocks->version when ranges were last joined because they had become complete */
    uint64_t stocked;           /* bit set: that owner's lists aren't empty; bit 0: `common` */
    uint64_t listless;   /* bit set: that owner's ranges are in `common` */
    struct sg_lists common;           /* of nobody's, and of owners for whom there is no host memory */
    struct sg_lists *lists[SG_SLOTS]; /* by owner; NULL: none yet, or `common` for good */
};

/* Blocks that were freed last and are kept whole. */
struct sg_region_quick {
    uint32_t deferred;       /* extents in quick lists */
    uint32_t whole_deferred; /* pages entirely inside one of them */
    uint32_t best_deferred;  /* the deferred block that fits better than every listed range; 0 after each change of the
                                lists */
    struct sg_quick_list list[SG_QUICK_LISTS];
    uint64_t used[SG_QUICK_LISTS / 64]; /* bit set: there may be something in it */
};

struct sg_region {
    struct sg_extents *extents;
    struct sg_extent *extent; /* extents->extent, copied to save a dependent load under `lock` */
    CUdeviceptr base;
    uint64_t reserved; /* bytes of addresses, of which the region may use the first part only */
    uint32_t index;    /* in its device */
    uint32_t units;    /* size of the reservation */
    uint32_t page_units;
    uint32_t page_shift; /* log2 of page_units, or 0 if it isn't a power of two */
    uint32_t pages;      /* units / page_units */
    uint32_t bucket_shift;
    uint32_t first; /* extent at address 0 */
    enum sg_fit fit;
    struct sg_region_lookup lookup;
    struct sg_region_memory memory;
    struct sg_region_quick quick;
    struct sg_region_owned owned;
};

static inline uint64_t sg_region_page_bytes(const struct sg_region *region)
{
    return (uint64_t)region->page_units << SG_UNIT_SHIFT;
}

/* A region of `bytes` at `base`, all of it one hole. `page_bytes` divides `bytes`; blocks will never be smaller than
   1 << bucket_shift units. False when there is no host memory. */
bool sg_region_init_locked(struct sg_region *region, struct sg_extents *extents, CUdeviceptr base, uint64_t bytes,
    uint64_t page_bytes, uint32_t bucket_shift) SG_REQUIRES(lock);
void sg_region_fini(struct sg_region *region);

/* Unmakes a region that is a hole while other regions go on using the device's extents: gives its extent back. */
void sg_region_unmake_locked(struct sg_region *region) SG_REQUIRES(lock);

/* Whether nothing is mapped in it, nor about to be. */
bool sg_region_is_hole_locked(const struct sg_region *region) SG_REQUIRES(lock);

/* A region that is a hole becomes one of `bytes`, which are one page, at its addresses. False, changing nothing,
   when there is no host memory. */
bool sg_region_remake_locked(struct sg_region *region, uint64_t bytes, uint32_t bucket_shift) SG_REQUIRES(lock);

/* From which end of a free range a block is taken. SETTLED takes the low end, and prefers a range with no hole behind it.
   HIGH takes the high end of the highest range that fits. */
enum sg_region_end { SG_END_LOW, SG_END_SETTLED, SG_END_HIGH };

/* Takes `units` from the lowest or nearly smallest free range that holds them, as the region's `fit` says, or the
   highest. Only of what `slot` may use (0: of what is complete), and what is its own first. Returns the new block's
   extent; 0 when none fits, as far as a short look tells, or no extent is to be had. */
uint32_t sg_region_take_locked(struct sg_region *region, uint32_t units, enum sg_region_end end, sg_slot slot)
    SG_REQUIRES(lock);

/* Takes `units` as sg_region_take_locked() does, after a thorough search over the borders of ranges and page by page. */
uint32_t sg_region_take_window_locked(struct sg_region *region, uint32_t units, sg_slot slot) SG_REQUIRES(lock);

/* Joins neighbours that could not be joined before their work was complete. False: nothing is complete that was not the
   last time. */
bool sg_region_coalesce_completed_locked(struct sg_region *region) SG_REQUIRES(lock);

/* The live block that starts at, or contains, a position, which may lie beyond the region; 0 if none. `likely`: which
   it may be, by sg_region_expect_free(), or 0. */
static inline uint32_t sg_region_block_at_locked(const struct sg_region *region, uint32_t position, uint32_t likely)
    SG_REQUIRES(lock);
uint32_t sg_region_block_in_table_locked(const struct sg_region *region, uint32_t position)
    SG_REQUIRES(lock); /* its slower half */
uint32_t sg_region_block_around_locked(const struct sg_region *region, uint32_t position) SG_REQUIRES(lock);

/* A block becomes pending: neither live nor free. */
void sg_region_suspend_locked(struct sg_region *region, uint32_t block) SG_REQUIRES(lock);

/* A block or pending block becomes free, of `owner` and after `seq` (0, 0: complete), and coalescing is deferred. The
   small region keeps the blocks of a size until the list is full or another size needs it. Other regions keep the
   latest block until the next request. */
void sg_region_release_locked(struct sg_region *region, uint32_t block, sg_slot owner, uint64_t seq) SG_REQUIRES(lock);

/* Coalesces all that is deferred. To be called before anything but sg_region_take_locked() looks for free memory. Returns
   whether there was any. */
bool sg_region_drain_quick_lists_locked(struct sg_region *region) SG_REQUIRES(lock);

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
    uint32_t whole;        /* whole free pages that it uses up and that could have been taken elsewhere */
};
enum sg_placement_goal {
    SG_FEWEST_NEW_PAGES, /* the fewest new pages: least work */
    SG_FEWEST_PAGES_TOTAL /* the fewest new and whole free pages together: what may still succeed when no page is to be
                             had */
};
bool sg_region_find_placement_locked(const struct sg_region *region, uint32_t units, bool high,
    enum sg_placement_goal goal, struct sg_taker taker, struct sg_placement *ret) SG_REQUIRES(lock);

/* Makes the place busy, with the whole of every page it needs. Returns the busy extent; 0: no extent is to
   be had, and nothing was changed. */
uint32_t sg_region_claim_locked(struct sg_region *region, const struct sg_placement *placement) SG_REQUIRES(lock);

/* What stands at the addresses of a page. Its handle, its pin and the extents over it say so; inspect/check.h has the
   function that reads them. */
enum sg_page_state {
    SG_PAGE_IS_EMPTY,  /* no handle: no memory. A hole, or busy while it is claimed */
    SG_PAGE_IS_IN_USE, /* a handle; a block or pending extent has a byte of it, or it is busy */
    SG_PAGE_IS_IDLE,   /* a handle; every byte is free. sg_region_movable_locked() says whether it may move now */
    SG_PAGE_IS_PINNED, /* in use or idle, with SG_PIN_ASKED: it keeps its address */
    SG_PAGE_IS_SHARED, /* in use or idle, with SG_PIN_TWICE: a stale address names its memory too */
    SG_PAGE_IS_STALE,  /* SG_PAGE_STALE: busy, a hole once a fence has passed (page_alias.h) */
    SG_PAGE_IS_LOST,   /* SG_PAGE_LOST: busy for good */
    SG_PAGE_STATES
};

/* Stands for the handle of a page that could not be unmapped after a failure: its address is never used again. */
#define SG_PAGE_LOST UINT64_MAX

/* Stands for the handle of a page whose memory is mapped elsewhere too, and there is where it belongs
   (page_alias.h). */
#define SG_PAGE_STALE (UINT64_MAX - 1)

/* Whether there is memory behind a page that is the page's own. */
static inline bool sg_page_is_there(CUmemGenericAllocationHandle handle)
{
    return handle && handle < SG_PAGE_STALE;
}

enum sg_pin { SG_PIN_ASKED = 1, SG_PIN_TWICE = 2 /* for each other address that its memory has */ };

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

/* Whether a page may be unmapped: nothing queued can touch its address, and nobody remembers it. */
static inline bool sg_region_movable_locked(const struct sg_region *region, uint32_t page) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return !region->memory.pin[page] &&
           (!region->owned.ordered || sg_after_complete(region->owned.clocks, region->memory.after[page]));
}

/* Whether a page's memory may get a second address for `slot` while this one stays. All work that can touch the page
   must be ordered before what the slot is given, and a fence must show when it is complete. A page with a stale
   address may move again. Its present address becomes stale too then. Stale addresses are unmapped oldest first. */
static inline bool sg_region_shareable_locked(const struct sg_region *region, uint32_t page, sg_slot slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return !(region->memory.pin[page] & SG_PIN_ASKED) && region->owned.ordered &&
           sg_after_usable(region->owned.clocks, region->memory.after[page], slot) &&
           sg_after_fenced(region->owned.clocks, region->memory.after[page]) &&
           !sg_after_complete(region->owned.clocks, region->memory.after[page]);
}

/* Whole, unpinned, complete free pages, all together. Deferred blocks do not count. */
uint32_t sg_region_idle_locked(const struct sg_region *region) SG_REQUIRES(lock);
/* Pages that may get a second address for the slot. */
uint32_t sg_region_shareable_pages_locked(const struct sg_region *region, sg_slot slot) SG_REQUIRES(lock);

/* Largest block that would fit without a new page, in units. */
uint32_t sg_region_largest_locked(const struct sg_region *region) SG_REQUIRES(lock);

/* Fetches into the processor's cache what freeing the block at a position will look at. Returns the extent that the
   block is likely to have. No lock needed: it reads what another thread may be writing, and does no more than look. The
   position must lie inside a region that is never remade. */
__attribute__((no_sanitize("thread"))) static inline uint32_t sg_region_expect_free(const struct sg_region *region,
    uint32_t position)
{
    uint32_t cell = position >> SG_CELL_SHIFT;
    uint32_t id = cell < region->lookup.cells
                      ? region->lookup.cell_first + cell
                      : *(const volatile uint32_t *)&region->lookup.block_at[position >> region->bucket_shift];
    __builtin_prefetch(&region->extent[id], 1);
    return id;
}

static inline uint32_t sg_region_block_at_locked(const struct sg_region *region, uint32_t position, uint32_t likely)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *extent = &region->extent[likely];
    bool is = extent->begin == position && extent->state == SG_EXTENT_BLOCK && extent->region == region->index;
    return is ? likely : sg_region_block_in_table_locked(region, position);
}

static inline CUdeviceptr sg_region_address(const struct sg_region *region, uint32_t position)
{
    return region->base + ((CUdeviceptr)position << SG_UNIT_SHIFT);
}

#endif
