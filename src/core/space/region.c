/* From below: making regions; choosing a range, by owner and size; quick lists; taking a block; finding one by its
   address; and freeing it. On the way of an allocation stands sg_region_take_locked() with one look at a quick list.
   All else is behind functions that are not inlined, so that it costs that way nothing. */
#include "core/space/region.h"

#include "core/space/coalesce.h"
#include "base/meta.h"

/* All tables are one mapping of host memory, which the kernel backs where it is touched. For 48 GiB of addresses in
   pages of 4 MiB they have 12,288 entries by page and 786,432 by bucket. A program pays for those that it uses. */
bool sg_region_init_locked(struct sg_region *region, struct sg_extents *extents, CUdeviceptr base, uint64_t bytes,
    uint64_t page_bytes, uint32_t bucket_shift)
{
    SG_ASSERT_EXTENTS_LOCK(extents); /* the region does not name them yet */
    assert(bytes % page_bytes == 0 && bytes >> SG_UNIT_SHIFT <= INT32_MAX && extents_left_locked(extents, 1));
    uint32_t units = (uint32_t)(bytes >> SG_UNIT_SHIFT), page_units = (uint32_t)(page_bytes >> SG_UNIT_SHIFT);
    uint32_t pages = units / page_units, buckets = (units >> bucket_shift) + 1;
    *region = (struct sg_region){.extents = extents, .extent = extents->extent, .base = base, .units = units,
        .page_units = page_units, .pages = pages, .bucket_shift = bucket_shift};
    if ((page_units & (page_units - 1)) == 0)
        region->page_shift = (uint32_t)__builtin_ctz(page_units);
    /* Where a bucket is one unit only one extent starts in it, so one table serves blocks and free ranges. */
    uint32_t block_buckets = bucket_shift ? buckets : 0;
    region->lookup.tables_bytes =
        pages * (sizeof *region->memory.after + sizeof *region->memory.handle + sizeof *region->memory.alias_target +
                    sizeof *region->lookup.hole_at + sizeof *region->memory.pin + sizeof *region->memory.place) +
        buckets * sizeof *region->lookup.free_at + block_buckets * sizeof *region->lookup.block_at;
    region->lookup.tables = sg_meta_map(region->lookup.tables_bytes);
    region->fit = bucket_shift == 0 ? SG_FIT_LOWEST : SG_FIT_SMALLEST;
    /* The regular region's lists answer allocations. Its tree serves only the search for pages, so it may be brought
       up to date late. */
    bool have_free = sg_max_tree_init(&region->lookup.free_tree, buckets,
        region->fit == SG_FIT_LOWEST ? SG_MAX_TREE_EAGER : SG_MAX_TREE_LATE);
    bool have_holes = sg_max_tree_init(&region->lookup.hole_tree, pages, SG_MAX_TREE_EAGER);
    if (!region->lookup.tables || !have_free || !have_holes) {
        sg_region_fini(region);
        return false;
    }
    region->memory.after = region->lookup.tables;
    region->memory.handle = (CUmemGenericAllocationHandle *)(region->memory.after + pages);
    region->memory.alias_target = (uint64_t *)(region->memory.handle + pages);
    region->lookup.hole_at = (uint32_t *)(region->memory.alias_target + pages);
    region->lookup.free_at = region->lookup.hole_at + pages;
    region->lookup.block_at = bucket_shift ? region->lookup.free_at + buckets : region->lookup.free_at;
    region->memory.pin = (uint8_t *)(region->lookup.free_at + buckets + block_buckets);
    region->memory.place = region->memory.pin + pages;
    if (region->fit == SG_FIT_LOWEST && !extents->cells_taken) {
        extents->cells_taken = true;
        region->lookup.cell_first = extents->capacity;
        region->lookup.cells = extents->cells;
    }
    region->owned.listed = region->fit == SG_FIT_SMALLEST;
    region->first = extent_new_at_locked(region, 0);
    *extent_at(region, region->first) = (struct sg_extent){.size = units};
    hole_insert_locked(region, region->first);
    return true;
}

void sg_region_fini(struct sg_region *region)
{
    sg_max_tree_fini(&region->lookup.free_tree);
    sg_max_tree_fini(&region->lookup.hole_tree);
    sg_meta_unmap(region->lookup.tables, region->lookup.tables_bytes);
    region->lookup.tables = NULL;
    for (uint32_t owner = 0; owner < SG_SLOTS; owner++)
        sg_meta_unmap(region->owned.lists[owner], sizeof *region->owned.lists[owner]);
}

void sg_region_unmake_locked(struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    assert(sg_region_is_hole_locked(region));
    if (region->lookup.cells)
        region->extents->cells_taken = false;
    extents_give_back_locked(region->extents, region->first);
    sg_region_fini(region);
}

bool sg_region_is_hole_locked(const struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *extent = extent_at(region, region->first);
    return extent->state == SG_EXTENT_HOLE && extent->size == region->units;
}

bool sg_region_remake_locked(struct sg_region *region, uint64_t bytes, uint32_t bucket_shift)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_region made;
    assert(sg_region_is_hole_locked(region) && bytes <= region->reserved);
    if (!sg_region_init_locked(&made, region->extents, region->base, bytes, bytes, bucket_shift))
        return false;
    made.index = region->index;
    made.reserved = region->reserved;
    made.owned.clocks = region->owned.clocks;
    extent_at(&made, made.first)->region = region->index;
    sg_region_unmake_locked(region);
    *region = made;
    return true;
}

/* The index of the quick list of a size and an owner. Two owners whose slots differ by a multiple of 8 share the
   small region's lists, and turn each other's blocks out. */
static inline uint32_t quick_list_of(const struct sg_region *region, uint32_t units, uint32_t owner)
{
    uint32_t of_owner = owner % SG_QUICK_OWNERS * SG_QUICK_SIZES;
    return region->fit == SG_FIT_SMALLEST ? owner : of_owner + units % SG_QUICK_SIZES;
}

/* True if a range could become larger where it is, because the addresses behind it have no memory yet. */
static inline bool can_grow_locked(const struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent_has_state_locked(region, extent_at(region, id)->next, SG_EXTENT_HOLE);
}

/* The size for which a range counts when the least is wanted. With `prefer_bounded` a range that can grow counts for
   more than all others: a block that needs new pages later will lack the fewest there. */
static inline uint32_t fit_key_locked(const struct sg_region *region, uint32_t id, bool prefer_bounded) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent_at(region, id)->size + (prefer_bounded && can_grow_locked(region, id) ? (uint32_t)INT32_MAX : 0);
}

/* The smallest of the first few ranges of a class that hold `units`; of all, where the first few do not and `all`. With
   `grows` those that can grow don't count: one of them is put there if nothing is yet; and of equals it is the
   lowest. */
static inline uint32_t smallest_of_class_locked(const struct sg_region *region, uint32_t first, uint32_t units,
    sg_slot slot, bool all, uint32_t *grows) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t best = 0, least = UINT32_MAX, seen = region->fit == SG_FIT_LOWEST ? SG_RANGES_LOOKED_AT - 1 : 0;
    for (uint32_t id = first; id && (seen++ < SG_RANGES_LOOKED_AT || (all && !best));
         id = extent_at(region, id)->in_size_class.more) {
        const struct sg_extent *extent = extent_at(region, id);
        bool better = extent->size < least ||
                      (grows && extent->size == least && extent->begin < extent_at(region, best)->begin);
        if (extent->size < units || !better || !extent_is_usable_locked(region, extent, slot))
            continue;
        if (grows && can_grow_locked(region, id)) {
            *grows = *grows ? *grows : id;
        } else {
            best = id;
            least = extent->size;
        }
    }
    return best;
}

/* A range of some lists that holds `units` and is close to the smallest one that does; 0 if none does.
   `prefer_bounded`: one that can grow only where there is no other. */
static uint32_t smallest_listed_locked(const struct sg_region *region, const struct sg_lists *lists, uint32_t units,
    sg_slot slot, bool all, bool prefer_bounded) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t grows = 0, class = size_class_of(units),
             best = smallest_of_class_locked(region, lists->first[class], units, slot, all,
                 prefer_bounded ? &grows : NULL);
    if (best)
        return best;
    /* The larger classes, by the bits of those that hold anything. The first range that serves is close to the
       smallest. */
    for (uint32_t word = ++class / 64; word < SG_SIZE_CLASSES / 64; class = ++word * 64) {
        for (uint64_t larger = lists->any[word] & ~((UINT64_C(1) << class % 64) - 1); larger; larger &= larger - 1) {
            uint32_t first = lists->first[word * 64 + (uint32_t)__builtin_ctzll(larger)];
            best = smallest_of_class_locked(region, first, units, slot, all, prefer_bounded ? &grows : NULL);
            if (best)
                return best;
        }
    }
    return grows;
}

/* The smallest range among those of other owners that `slot` is ordered after. Owners of whose work it is ordered
   after nothing are passed over without a look at their lists. */
static uint32_t smallest_of_others_locked(const struct sg_region *region, uint32_t units, sg_slot slot,
    bool prefer_bounded) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t best = 0;
    for (uint64_t left = region->owned.stocked & ~(UINT64_C(1) << slot | 1); left; left &= left - 1) {
        unsigned owner = (unsigned)__builtin_ctzll(left);
        if (!region->owned.clocks->complete[owner] && !(slot && region->owned.clocks->ordered_after[slot].at[owner]))
            continue;
        uint32_t id =
            smallest_listed_locked(region, region->owned.lists[owner], units, slot, /* all */ false, prefer_bounded);
        if (id && (!best || fit_key_locked(region, id, prefer_bounded) < fit_key_locked(region, best, prefer_bounded)))
            best = id;
    }
    return best;
}

/* The smallest range of all that `slot` may use: nobody's, its own, and others'. Among equals its own comes first,
   since others could not have that, and others' come last. In the small region others' are the last resort. */
static uint32_t smallest_range_locked(const struct sg_region *region, uint32_t units, sg_slot slot, bool prefer_bounded)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t best = region->owned.stocked & 1 ? smallest_listed_locked(region, &region->owned.common, units, slot,
                                                    /* all */ true, prefer_bounded)
                                              : 0;
    if (slot && region->owned.stocked >> slot & 1) {
        uint32_t own =
            smallest_listed_locked(region, region->owned.lists[slot], units, slot, /* all */ true, prefer_bounded);
        if (own &&
            (!best || fit_key_locked(region, own, prefer_bounded) <= fit_key_locked(region, best, prefer_bounded)))
            best = own;
    }
    if (!region->owned.ordered || (best && region->fit == SG_FIT_LOWEST))
        return best;
    uint32_t other = smallest_of_others_locked(region, units, slot, prefer_bounded);
    return other && (!best ||
                        fit_key_locked(region, other, prefer_bounded) < fit_key_locked(region, best, prefer_bounded))
               ? other
               : best;
}

/* Finds a free range for a block. The lowest is looked for in
                                                       the tree, where at most SG_RANGES_LOOKED_AT (8) are asked
                                                       whether the slot may use them. Where lists are kept, these then
                                                       answer for all. */
static uint32_t find_range_locked(const struct sg_region *region, uint32_t units, enum sg_region_end end, sg_slot slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    bool high = end == SG_END_HIGH;
    if (!high && region->fit == SG_FIT_SMALLEST)
        return smallest_range_locked(region, units, slot, /* prefer_bounded */ end == SG_END_SETTLED);
    if (!high && region->owned.listed) /* the lowest is likely another's */
        return smallest_range_locked(region, units, slot, /* prefer_bounded */ false);
    /* The tree knows lengths and no owners. A few ranges that the slot may not use are passed over, and no more,
       since there may be thousands. */
    uint32_t from = high ? region->lookup.free_tree.buckets : 0;
    for (uint32_t looks = 0; looks < SG_RANGES_LOOKED_AT; looks++) {
        uint32_t found = high ? sg_max_tree_last(&region->lookup.free_tree, from, (int32_t)units)
                              : sg_max_tree_first(&region->lookup.free_tree, from, (int32_t)units);
        if (found == SG_MAX_TREE_NONE)
            return 0;
        uint32_t id = free_in_bucket_locked(region, found);
        if (extent_is_usable_locked(region, extent_at(region, id), slot))
            return id;
        from = high ? found : found + 1;
    }
    return region->owned.listed ? smallest_range_locked(region, units, slot, /* prefer_bounded */ false) : 0;
}

/* Apart from its caller, whose other way then needs no stack frame of this size. */
static __attribute__((noinline)) void block_coalesce_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    extent_coalesce_locked(region, id);
}

/* Coalesces all blocks of one quick list. */
static __attribute__((noinline)) void quick_list_drain_locked(struct sg_region *region, uint32_t index) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_quick_list *quick_list = &region->quick.list[index];
    for (uint32_t id = quick_list->top, later; quick_list->count; id = later) {
        later = extent_at(region, id)->later;
        quick_list->count--;
        region->quick.deferred--;
        region->quick.whole_deferred -= pages_inside(region, extent_at(region, id)->begin, extent_at(region, id)->size);
        extent_coalesce_locked(region, id);
    }
    region->quick.used[index / 64] &= ~(UINT64_C(1) << index % 64);
}

bool sg_region_drain_quick_lists_locked(struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    bool any = region->quick.deferred > 0;
    for (uint32_t word = 0; region->quick.deferred; word++)
        while (region->quick.used[word])
            quick_list_drain_locked(region, word * 64 + (uint32_t)__builtin_ctzll(region->quick.used[word]));
    return any;
}

/* True if another range would be taken rather than a kept block, had that been joined with the free memory behind it.
   No block is kept that follows a free range, so only what is behind counts. A kept block thus never changes where
   blocks stand. It saves the index, and no more. */
static __attribute__((noinline)) bool is_worse_fit_locked(const struct sg_region *region, uint32_t candidate,
    sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *extent = extent_at(region, candidate), *next = extent_at(region, extent->next);
    const struct sg_lists *own = region->owned.lists[slot];
    uint32_t class = size_class_of(extent->size);
    bool joins = next->state == SG_EXTENT_FREE && next->owner == slot;
    /* With an empty class, and nothing to join, no range can be a better fit than one of the exact size. */
    if (!joins && !region->owned.common.first[class] &&
        !(own && own->first[class])) /* then only one of its size counts */
        return false;
    uint32_t other = smallest_range_locked(region, extent->size, slot, /* prefer_bounded */ true);
    if (!other || other == extent->next)
        return false;
    uint32_t joined = extent->size + (joins ? fit_key_locked(region, extent->next, /* prefer_bounded */ true) : 0),
             counts = fit_key_locked(region, other, /* prefer_bounded */ true);
    return counts < joined || (counts == joined && extent_at(region, other)->begin < extent->begin);
}

/* Takes the block that was kept last out of a list that has one. */
static inline uint32_t quick_list_pop_locked(struct sg_region *region, struct sg_quick_list *quick_list)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t id = quick_list->top;
    struct sg_extent *extent = extent_at(region, id);
    quick_list->top = extent->later;
    quick_list->count--;
    region->quick.deferred--;
    region->quick.whole_deferred -= pages_inside(region, extent->begin, extent->size);
    assert(region->lookup.block_at[extent->begin >> region->bucket_shift] == id);
    extent->state = SG_EXTENT_BLOCK; /* all else is as it was: with many blocks the table is far away */
    return id;
}

/* Takes a block that is kept whole, has this size and may be used by `slot`. 0: none is, or another range fits better
   and `end` asks for that. */
static inline uint32_t quick_list_take_locked(struct sg_region *region, uint32_t units, uint32_t owner,
    enum sg_region_end end, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_quick_list *quick_list = &region->quick.list[quick_list_of(region, units, owner)];
    uint32_t id = quick_list->top;
    if (!quick_list->count || quick_list->units != units ||
        (quick_list->owner != slot && !extent_is_usable_locked(region, extent_at(region, id), slot)))
        return 0;
    if (units >= SG_DEFERRED_LEAST / SG_UNIT && end == SG_END_SETTLED && id != region->quick.best_deferred) {
        if (is_worse_fit_locked(region, id, slot))
            return 0;
        region->quick.best_deferred = id;
    }
    return quick_list_pop_locked(region, quick_list);
}

/* All of sg_region_take_locked() but its first look, apart so that its variables cost that nothing. */
static __attribute__((noinline)) uint32_t take_slowly_locked(struct sg_region *region, uint32_t units,
    enum sg_region_end end, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t id = quick_list_take_locked(region, units, slot, end, slot);
    if (!id && slot && region->quick.deferred)
        id = quick_list_take_locked(region, units, 0, end, slot);
    if (id)
        return id;
    /* The stream's own kept block joins first: it does not fit, and its neighbours may. Others' kept blocks are
       theirs until nothing else fits. */
    if (region->fit == SG_FIT_SMALLEST && region->quick.deferred)
        quick_list_drain_locked(region, slot);
    id = find_range_locked(region, units, end, slot);
    if (!id)
        return 0;
    struct sg_extent *extent = extent_at(region, id);
    assert(extent->state == SG_EXTENT_FREE && extent->size >= units);
    /* The block is cut from one end of the range. Which of the two keeps the range's extent depends on what is
       cheaper: the entry in the index, or the cell by which a small block is found. */
    uint32_t rest = extent->size - units;
    if (rest == 0) {
        free_remove_locked(region, extent);
    } else if (!extents_left_locked(region->extents, SG_EXTENTS_SPARE)) {
        return 0;
    } else if (end == SG_END_HIGH) {
        free_resize_locked(region, id, extent->begin, rest);
        id = extent_insert_after_locked(region, id, extent->begin + rest, units);
    } else if (region->lookup.cells) { /* the block keeps the extent, which may be its cell's */
        uint32_t left = extent_insert_after_locked(region, id, extent->begin + units, rest);
        free_pass_locked(region, id, left);
        extent->size = units;
    } else {
        uint32_t begin = extent->begin;
        free_shrink_locked(region, id, begin + units, rest);
        id = extent_insert_before_locked(region, id, begin, units);
    }
    block_insert_locked(region, id);
    return id;
}

uint32_t sg_region_take_locked(struct sg_region *region, uint32_t units, enum sg_region_end end, sg_slot slot)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_quick_list *quick_list = &region->quick.list[quick_list_of(region, units, slot)];
    if (quick_list->count && quick_list->units == units && quick_list->owner == slot &&
        (units < SG_DEFERRED_LEAST / SG_UNIT || quick_list->top == region->quick.best_deferred))
        return quick_list_pop_locked(region, quick_list);
    return take_slowly_locked(region, units, end, slot);
}

/* True if the extent that an entry of block_at names is still a block that begins in that bucket. Entries are not
   cleared when their block goes, so this is asked each time. */
static inline bool is_block_locked(const struct sg_region *region, uint32_t id, uint32_t bucket) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *extent = extent_at(region, id);
    return extent->state == SG_EXTENT_BLOCK && extent->region == region->index &&
        extent->begin >> region->bucket_shift == bucket;
}

uint32_t sg_region_block_in_table_locked(const struct sg_region *region, uint32_t position)
{
    SG_ASSERT_REGION_LOCK(region);
    if (position >= region->units)
        return 0;
    uint32_t bucket = position >> region->bucket_shift, id = region->lookup.block_at[bucket];
    return id && is_block_locked(region, id, bucket) && extent_at(region, id)->begin == position ? id : 0;
}

uint32_t sg_region_block_around_locked(const struct sg_region *region, uint32_t position)
{
    SG_ASSERT_REGION_LOCK(region);
    /* Bucket by bucket down, to the first block that begins at or before the position. It may end before it. */
    for (uint32_t bucket = position >> region->bucket_shift; position < region->units; bucket--) {
        uint32_t id = region->lookup.block_at[bucket];
        if (id && is_block_locked(region, id, bucket) && extent_at(region, id)->begin <= position)
            return position < extent_end(extent_at(region, id)) ? id : 0;
        if (bucket == 0)
            break;
    }
    return 0;
}

void sg_region_suspend_locked(struct sg_region *region, uint32_t block)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, block);
    assert(extent->state == SG_EXTENT_BLOCK);
    extent->state = SG_EXTENT_PENDING;
}

void sg_region_release_locked(struct sg_region *region, uint32_t block, sg_slot owner, uint64_t seq)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, block);
    assert(extent->state == SG_EXTENT_BLOCK || extent->state == SG_EXTENT_PENDING);
    if (owner || region->owned.ordered) {
        /* Others wait for the work that used the block, not for all that its stream is ordered after by now. */
        struct sg_after after = {UINT64_C(1) << owner & ~UINT64_C(1), seq};
        if (owner && extent->state == SG_EXTENT_PENDING)
            after = (struct sg_after){extent->users_mask, extent->seq};
        sg_region_note_after_locked(region, extent->begin, extent->size, after);
    }
    extent->owner = owner;
    extent->seq = seq;
    /* From here on the block is nobody's, and it is decided whether it joins its neighbours now or is kept whole. */
    if (region->fit == SG_FIT_SMALLEST) {
        if (region->quick.deferred)
            quick_list_drain_locked(region, owner);
        /* One block at most is kept, until the next request, because a large block that is kept from its neighbours
           costs pages. One that follows a free range is not kept: it would be given out again in the middle of free
           memory. */
        if (extent->size < SG_DEFERRED_LEAST / SG_UNIT || extent_at(region, extent->prev)->state == SG_EXTENT_FREE) {
            block_coalesce_locked(region, block);
            return;
        }
    }
    uint32_t index = quick_list_of(region, extent->size, owner);
    struct sg_quick_list *quick_list = &region->quick.list[index];
    uint32_t depth = SG_QUICK_DEPTH + region->extents->live / SG_QUICK_SHARE;
    if (quick_list->units != extent->size || quick_list->owner != owner || quick_list->count >= depth) {
        quick_list_drain_locked(region, index);
        quick_list->units = extent->size;
        quick_list->owner = owner;
    }
    extent->state = SG_EXTENT_DEFERRED;
    extent->later = quick_list->top;
    quick_list->top = block;
    if (quick_list->count++ == 0)
        region->quick.used[index / 64] |= UINT64_C(1) << index % 64;
    region->quick.deferred++;
    region->quick.whole_deferred += pages_inside(region, extent->begin, extent->size);
}

/* How many of the pages that lie wholly inside free ranges pass the question `counts`, for a slot. */
static uint32_t count_whole_locked(const struct sg_region *region,
    bool (*counts)(const struct sg_region *, uint32_t, sg_slot), sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t pages = 0;
    for (uint32_t bucket = 0, id;
         region->lookup.whole_free && (id = free_next_locked(region, region->page_units, &bucket));) {
        uint32_t to = page_of(region, extent_end(extent_at(region, id)));
        for (uint32_t page = page_of(region, extent_at(region, id)->begin + region->page_units - 1); page < to; page++)
            pages += counts(region, page, slot);
    }
    return pages;
}

/* sg_region_movable_locked() as such a question. */
static bool may_move_locked(const struct sg_region *region, uint32_t page, sg_slot slot) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    (void)slot;
    return sg_region_movable_locked(region, page);
}

uint32_t sg_region_idle_locked(const struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    bool all = !region->memory.pinned && !region->memory.far_pages && !region->owned.ordered;
    return all ? region->lookup.whole_free : count_whole_locked(region, may_move_locked, 0);
}

uint32_t sg_region_shareable_pages_locked(const struct sg_region *region, sg_slot slot)
{
    SG_ASSERT_REGION_LOCK(region);
    return region->owned.ordered ? count_whole_locked(region, sg_region_shareable_locked, slot) : 0;
}

uint32_t sg_region_largest_locked(const struct sg_region *region)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t largest = (uint32_t)sg_max_tree_largest(&region->lookup.free_tree);
    for (uint32_t word = 0; word < SG_QUICK_LISTS / 64; word++) {
        for (uint64_t left = region->quick.used[word]; left; left &= left - 1) {
            const struct sg_quick_list *quick_list = &region->quick.list[word * 64 + (uint32_t)__builtin_ctzll(left)];
            if (quick_list->count && quick_list->units > largest)
                largest = quick_list->units;
        }
    }
    return largest;
}
