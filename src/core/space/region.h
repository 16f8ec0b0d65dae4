/* A region: one reservation of device addresses, tiled by extents in address order.

   Nouns. An *extent* is a piece of the region in one state (extents.h). A *page* is what is mapped at once, a *unit*
   is 512 bytes. A *hole* has no memory. A *bucket* of addresses is 1 << bucket_shift units, at most the smallest
   block of the region and at most a page. A *quick list* keeps freed blocks of one size whole. The *owner* of a free
   range is the slot of the stream that its block was allocated for; 0 is nobody. Its *time* says how much of the
   owner's work comes first.

   Why one tiling for all: what is free, in use and without memory stands in one order of addresses. So a look at the
   two neighbours says whether ranges join, and a walk says what a block would need at any place.

   How. A free range comes after all that its owner was given before its time (order/stream_clock.h). The owner may
   use it at once; another stream may use it once it is ordered after the time. Neighbours of one owner are one range,
   with the later time. `after` has that knowledge page by page. So another stream can use the older parts of a range,
   and complete pages can be moved. At most one block and one free range start in a bucket, so plain arrays serve as
   dictionaries.

   Limits. No function here calls the driver, waits or locks. The device's `lock` is held, as SG_ASSERT_REGION_LOCK()
   checks. A region never grows, and its addresses are never given back: a full one is joined by another
   (state/regions.h).

   For example, the regular region of a card of 24 GiB has 48 GiB of addresses from 0x7f00c0600000 on, and pages of 4
   MiB. It begins as one hole of 12,288 pages. A block of 300 MiB and 1 byte is 614,401 units, so 76 pages are mapped
   under it. Now three extents tile the region: the block, a free range of 8,191 units behind it, and a hole of 12,212
   pages. The block's free keeps it whole, on a quick list. The next request of another size joins it with the free
   range: 622,592 units, in which all 76 pages are idle. (tests/core/test_worked_cases.c)

   Invariants, checked by sg_region_broken() (tests/core/check/check.h):

      - the extents tile [0, units) without gap or overlap;
      - neighbours differ in state unless both are blocks, pending or fragments, or free for different streams;
      - holes begin and end at page boundaries, and a page has a handle exactly where no hole covers it (busy extents
        aside);
      - every free range is in `free_tree` under the bucket of its first unit, and whole_free counts the pages that lie
        entirely inside free ranges. */
#ifndef SG_CORE_SPACE_REGION_H
#define SG_CORE_SPACE_REGION_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "base/max_tree.h"
#include "core/space/extents.h"
#include "order/stream_clock.h"
#define SG_ASSERT_REGION_LOCK(region) SG_ASSERT_EXTENTS_LOCK((region)->extents)

/* A quick list: blocks of one size and one owner that were freed last and have not coalesced yet.

   Why: a training loop asks for 16 to 20 sizes again and again, and a quick list answers them without the index. How:
   the small region has 128 sizes for each of 8 owners (the owner's slot modulo 8). The others have one list for each
   owner, with one block at most. A list keeps SG_QUICK_DEPTH (16) blocks, and one more for each SG_QUICK_SHARE
   (1,024) extents: with very many extents the neighbours that coalescing reads are in no cache. Limits: a list that
   is given another size or owner, or one block too many, is joined into the free ranges first.

   For example, with 4,096 extents a list of 512-byte blocks keeps 16 + 4 of them. The free of a 21st joins those 20,
   and is kept itself. */
enum { SG_QUICK_SIZES = SG_SMALL_BYTES / SG_UNIT, SG_QUICK_OWNERS = 8,
    SG_QUICK_LISTS = SG_QUICK_SIZES * SG_QUICK_OWNERS };
struct sg_quick_list {
    uint32_t count, units, top; /* top: extent, the others follow by `later` */
    uint32_t owner;             /* of all in it */
};

/* Free ranges of one owner by size class, where the smallest that fits is wanted. */
enum { SG_SIZE_CLASSES = 32 << SG_SIZE_CLASS_BITS };
struct sg_lists {
    uint64_t any[SG_SIZE_CLASSES / 64]; /* bit set: the list isn't empty */
    uint32_t first[SG_SIZE_CLASSES];
};

/* The range in which a block is put (docs/experiments/placement.md). In the regular region, with few large blocks, the
   smallest range keeps the most pages whole. In the small region the lowest range does, and it costs less. */
enum sg_fit { SG_FIT_LOWEST, SG_FIT_SMALLEST };

/* Places: the owner of a page's memory. All but the device's own are *far*, and the first of them is taken first. */
enum sg_place { SG_PLACE_NEAR /* the device's */, SG_PLACE_PEER /* another device's */, SG_PLACE_HOST, SG_PLACES };

/* The memory behind the addresses, page by page. Each array has an entry for each page of the region. */
struct sg_region_memory {
    uint32_t mapped; /* pages with a handle of their own */
    uint32_t pinned; /* pages that may not move */
    uint32_t stale;  /* pages that are aliases: their memory belongs to another page by now (remap/page_alias.h) */
    CUmemGenericAllocationHandle *handle; /* physical memory; 0: none. Or SG_PAGE_LOST, _ALIAS, _PAUSED */
    uint8_t *pin;                         /* sum of enum sg_pin; not 0: the page may not move */
    uint64_t *alias_target;               /* of an alias: the region and page to which its memory has moved */
    uint8_t *place;                       /* whose memory it is: enum sg_place */
    uint32_t far_pages;                   /* how many of them are not the device's (remap/overflow.h) */
    struct sg_after *after;               /* the work, at most, after which all that is free in the page comes */
};

/* The way from a position to the extent there. */
struct sg_region_lookup {
    /* Cells: an extent that begins in units [2 i, 2 i + 2) is number cell_first + i, if that was unused when it came
       to be. So most blocks of the small region are found with one look at memory. The table below costs two, one
       after the other. */
    uint32_t cell_first, cells;
    uint32_t whole_free;          /* pages entirely inside free ranges */
    struct sg_max_tree free_tree; /* bucket -> size of the free range that starts there */
    struct sg_max_tree hole_tree; /* page -> pages of the hole that starts there */
    /* Bucket -> extent. An entry is not cleared when its extent goes on to be another, which saves a write in memory
       that is far away: readers compare state and bounds. */
    uint32_t *free_at, *block_at;
    uint32_t *hole_at;            /* page -> extent */
    void *tables;                 /* all tables of the region by page or bucket */
    size_t tables_bytes;
};

/* Free ranges by owner. A program with one stream, or none, pays for none of this. */
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

/* Blocks that were freed last and are kept whole, in quick lists. */
struct sg_region_quick {
    uint32_t deferred;       /* extents in quick lists */
    uint32_t whole_deferred; /* pages entirely inside one of them */
    /* The deferred block that fits better than every listed range, found by the last look; 0 after each change of the
       lists. A pair of malloc and free of one size then asks once. */
    uint32_t best_deferred;
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

/* The state of a page. It is stored nowhere: handle, pin and the extents over the page say it together.
   tests/core/check/check.h has the function that derives it, and checks that the tiling agrees.

   Handles are written by remap/plan.c (a page loses or gets its memory), remap/execute.c (undone, lost),
   remap/page_alias.c (aliases) and remap/pause_pages.c (paused). Pins are written by state/pins.c (asked), page_alias.c
   (aliased) and core.c (none is left). The extents, by space/region.c and state/accounts.c, make a page in use or idle.

   The allocator itself asks narrower questions, each by its own function: sg_page_is_there(), sg_region_movable_locked()
   and sg_region_shareable_locked(), which placement and plans ask of each page. Only tests name the whole state. */
enum sg_page_state {
    SG_PAGE_IS_EMPTY,   /* no handle: no memory. A hole, or busy while it is claimed */
    SG_PAGE_IS_IN_USE,  /* a handle; a block or pending extent has a byte of it, or it is busy */
    SG_PAGE_IS_IDLE,    /* a handle; every byte is free. sg_region_movable_locked() says whether it may move now */
    SG_PAGE_IS_PINNED,  /* in use or idle, with SG_PIN_ASKED: it keeps its address */
    SG_PAGE_IS_ALIASED, /* in use or idle, with SG_PIN_ALIASED: an alias names its memory too */
    SG_PAGE_IS_ALIAS,   /* SG_PAGE_ALIAS: busy, a hole once a fence has passed (remap/page_alias.h) */
    SG_PAGE_IS_LOST,    /* SG_PAGE_LOST: busy for good */
    SG_PAGE_IS_PAUSED,  /* SG_PAGE_PAUSED: no memory until its region wakes (space/paused.h) */
    SG_PAGE_STATES
};

/* Stands for the handle of a page that could not be unmapped after a failure: its address is never used again. */
#define SG_PAGE_LOST UINT64_MAX

/* Stands for the handle of a page that is an alias: its memory is still mapped here, and belongs to another page by now
   (remap/page_alias.h). */
#define SG_PAGE_ALIAS (UINT64_MAX - 1)

/* Stands for the handle of a page of a paused region: no memory is behind it, and blocks may stand there (paused.h). */
#define SG_PAGE_PAUSED (UINT64_MAX - 2)

/* True if there is memory behind a page, and it is the page's own. */
static inline bool sg_page_is_there(CUmemGenericAllocationHandle handle)
{
    return handle && handle < SG_PAGE_PAUSED;
}

/* True if something is mapped at a page: its own memory, or what has moved on. */
static inline bool sg_page_is_mapped(CUmemGenericAllocationHandle handle)
{
    return sg_page_is_there(handle) || handle == SG_PAGE_ALIAS;
}

/* Reasons for which a page may not move, added up in one byte. SG_PIN_ALIASED counts once for each alias of its
   memory, so a page has 127 of them at most. */
enum sg_pin {
    SG_PIN_ASKED = 1,  /* the program, or a library, remembers its memory: for good */
    SG_PIN_ALIASED = 2 /* until the alias is unmapped */
};

/* Bytes of a page. */
static inline uint64_t sg_region_page_bytes(const struct sg_region *region)
{
    return (uint64_t)region->page_units << SG_UNIT_SHIFT;
}

/* The device address of a position. */
static inline CUdeviceptr sg_region_address(const struct sg_region *region, uint32_t position)
{
    return region->base + ((CUdeviceptr)position << SG_UNIT_SHIFT);
}

/* Makes a region of `bytes` at `base`, all of it one hole. `page_bytes` divides `bytes`. Blocks will never be smaller
   than 1 << bucket_shift units; with 0 it is a small region, in which the lowest range that fits is taken. False: no
   host memory, and `region` holds nothing. The addresses stay the caller's. */
bool sg_region_init_locked(struct sg_region *region, struct sg_extents *extents, CUdeviceptr base, uint64_t bytes,
    uint64_t page_bytes, uint32_t bucket_shift) SG_REQUIRES(lock);
void sg_region_fini(struct sg_region *region);

/* Unmakes a region that is a hole while other regions go on using the device's extents: gives its extent back. */
void sg_region_unmake_locked(struct sg_region *region) SG_REQUIRES(lock);

/* True if nothing is mapped in it, nor about to be. */
bool sg_region_is_hole_locked(const struct sg_region *region) SG_REQUIRES(lock);

/* Makes a region that is a hole into one of `bytes`, which are one page, at its addresses: the next huge block's.
   False: no host memory, and nothing has changed. */
bool sg_region_remake_locked(struct sg_region *region, uint64_t bytes, uint32_t bucket_shift) SG_REQUIRES(lock);

/* From which end of a free range a block is taken. SETTLED takes the low end, and prefers a range with no hole behind
   it. HIGH takes the high end of the highest range that fits. */
enum sg_region_end { SG_END_LOW, SG_END_SETTLED, SG_END_HIGH };

/* Takes `units` from the lowest or nearly smallest free range that holds them, as the region's `fit` says, or from
   the highest. Only ranges count that `slot` may use as a whole, its own first; for slot 0 they are the complete
   ones. Returns the new block's extent. 0: none fits as far as a short look shows, or too few extents are left. */
uint32_t sg_region_take_locked(struct sg_region *region, uint32_t units, enum sg_region_end end, sg_slot slot)
    SG_REQUIRES(lock);

/* The live block that starts at a position, or with _around the one that contains it; 0: there is none. The position
   may lie beyond the region. `likely` is a guess from sg_region_expect_free(), or 0. */
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

/* Coalesces all that is deferred. Callers do so before anything but sg_region_take_locked() looks for free memory.
   Returns true if there was any. */
bool sg_region_drain_quick_lists_locked(struct sg_region *region) SG_REQUIRES(lock);

/* True if a page may be unmapped now: nothing queued can touch its address, and nobody remembers it. The caller knows
   that it is free. */
static inline bool sg_region_loose_locked(const struct sg_region *region, uint32_t page) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return !region->memory.pin[page] &&
           (!region->owned.ordered || sg_after_complete(region->owned.clocks, region->memory.after[page]));
}

/* True if such a page may serve elsewhere on the device: its memory is the device's. */
static inline bool sg_region_movable_locked(const struct sg_region *region, uint32_t page) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return !region->memory.place[page] && sg_region_loose_locked(region, page);
}

/* True if a page's memory may move for `slot` while its present address stays mapped, as an alias. All work that can
   touch the page must be ordered before the slot's next work. A fence must show when it is complete. A page with an
   alias may move again: its present address becomes an alias too. Aliases are unmapped oldest first. */
static inline bool sg_region_shareable_locked(const struct sg_region *region, uint32_t page, sg_slot slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return !(region->memory.pin[page] & SG_PIN_ASKED) && !region->memory.place[page] && region->owned.ordered &&
           sg_after_usable(region->owned.clocks, region->memory.after[page], slot) &&
           sg_after_fenced(region->owned.clocks, region->memory.after[page]) &&
           !sg_after_complete(region->owned.clocks, region->memory.after[page]);
}

/* How many whole free pages of the device may be unmapped now. Deferred blocks do not count. */
uint32_t sg_region_idle_locked(const struct sg_region *region) SG_REQUIRES(lock);
/* Pages that may move for the slot and leave an alias. */
uint32_t sg_region_shareable_pages_locked(const struct sg_region *region, sg_slot slot) SG_REQUIRES(lock);

/* The largest block that would fit without a new page, in units, whoever owns it: a figure for statistics. */
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

#endif
