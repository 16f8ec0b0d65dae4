/* Coalescing: free neighbours become one range, as far as their owners allow.

   Nouns. A free range is *complete* once the work that its owner was given before the free is over. It is *usable*
   for a stream that may have it now. A *fragment* is a free piece that is shorter than a bucket and can't join its
   neighbour yet.

   Why owners matter: one range has one owner and one time. Where a stream's range joined another's, the later time of
   the two would hold for both, and each stream would wait for the other's work. How: two ranges of one owner always
   join. A complete one joins another stream's if it is the smaller, or less than a page. Limits: more ranges than one
   may then begin in a bucket; all but the last are fragments.

   For example, stream 1 has freed 10 pages at time 100 and stream 2 half a page behind them at time 140. Stream 2 is
   complete up to 150: its half page joins, and all is stream 1's after time 100. If it is complete up to 120 only,
   both stay apart until sg_region_coalesce_completed_locked() finds more complete. */
#ifndef SG_CORE_SPACE_COALESCE_H
#define SG_CORE_SPACE_COALESCE_H

#include "core/space/free_index.h"

/* True if free memory of the region has belonged to more than one owner. Nobody, owner 0, counts as one. */
static inline bool region_has_several_owners_locked(const struct sg_region *region) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return sg_has_several_bits(region->owned.owners);
}

/* True if all work is over that used the free range before it was freed: any stream may have it. */
static inline bool extent_is_complete_locked(const struct sg_region *region, const struct sg_extent *extent)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent->owner == 0 || region->owned.clocks->complete[extent->owner] >= extent->seq;
}

/* True if the stream of `slot` may use a free range as a whole. One of three must hold: it is the owner, the range is
   complete, or it is ordered after the owner up to the range's time. Rules for the third are in docs/stream-order.md.
   Slot 0 passes by the second alone. */
static inline bool extent_is_usable_locked(const struct sg_region *region, const struct sg_extent *extent, sg_slot slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    return extent->owner == slot || extent_is_complete_locked(region, extent) ||
           (slot && region->owned.clocks->ordered_after[slot].at[extent->owner] >= extent->seq);
}

/* True if two free neighbours can be one range without a loss worth mentioning; *ret_owner and *ret_seq then say
   whose it is. Two of one owner always can, with the later time. A complete one joins another owner's if that is
   larger, or if the complete one is less than a page. It loses its completeness by that, so a page or more would be
   worth more apart. */
static inline bool extents_may_join_locked(const struct sg_region *region, const struct sg_extent *a,
    const struct sg_extent *b, uint32_t *ret_owner, uint64_t *ret_seq) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    const struct sg_extent *whose = a->seq > b->seq ? a : b;
    if (a->owner != b->owner) {
        bool a_complete = extent_is_complete_locked(region, a), b_complete = extent_is_complete_locked(region, b);
        const struct sg_extent *larger = a->size > b->size ? a : b;
        if (a_complete && b_complete)
            whose = larger;
        else if (a_complete && (larger == b || a->size < region->page_units))
            whose = b;
        else if (b_complete && (larger == a || b->size < region->page_units))
            whose = a;
        else
            return false;
    }
    *ret_owner = whose->owner;
    *ret_seq = whose->seq;
    return true;
}

/* Turns an extent that is in no index, and joins nothing, into a free range. Several neighbours may begin in one
   bucket where their owners differ, but the bucket's table has room for one. So the last of them is a range, and the
   others are fragments until they can join. They are shorter than a bucket, which is at most the smallest block, so
   nothing is lost meanwhile. */
static inline void free_put_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    uint32_t bucket = extent_at(region, id)->begin >> region->bucket_shift,
             below = free_down_in_bucket_locked(region, extent_at(region, id)->prev, bucket);
    if (below) {
        free_remove_locked(region, extent_at(region, below));
        extent_at(region, below)->state = SG_EXTENT_FRAGMENT;
    }
    if (free_up_in_bucket_locked(region, extent_at(region, id)->next, bucket))
        extent_at(region, id)->state = SG_EXTENT_FRAGMENT;
    else
        free_insert_locked(region, id);
}

/* Joins an extent that is in no index with a neighbour that is free or a fragment. False: their owners forbid it, and
   nothing has changed. Otherwise the neighbour's extent is gone. */
static inline bool extent_absorb_locked(struct sg_region *region, uint32_t id, uint32_t other) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id), *piece = extent_at(region, other);
    uint32_t owner;
    uint64_t seq;
    if ((piece->state != SG_EXTENT_FREE && piece->state != SG_EXTENT_FRAGMENT) ||
        !extents_may_join_locked(region, extent, piece, &owner, &seq))
        return false;
    if (piece->state == SG_EXTENT_FREE)
        free_remove_locked(region, piece);
    extent->begin = piece->begin < extent->begin ? piece->begin : extent->begin;
    extent->size += piece->size;
    extent->owner = owner;
    extent->seq = seq;
    extent_unlink_locked(region, other);
    return true;
}

/* Turns an extent into free memory where owners differ, or where a neighbour is a fragment. Each join may make the
   next one possible, since the joined range is larger, so it goes on until neither neighbour joins. */
static inline void extent_coalesce_mixed_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    for (bool more = true; more;) {
        uint32_t prev = extent_at(region, id)->prev, next = extent_at(region, id)->next;
        more = (prev && extent_absorb_locked(region, id, prev)) || (next && extent_absorb_locked(region, id, next));
    }
    free_put_locked(region, id);
}

/* True if a neighbour needs the slower half, extent_coalesce_mixed_locked(): it is a fragment, or free for another
   owner. */
static inline bool extent_is_other(const struct sg_extent *neighbour, const struct sg_extent *extent)
{
    return neighbour->state == SG_EXTENT_FRAGMENT ||
           (neighbour->state == SG_EXTENT_FREE && neighbour->owner != extent->owner);
}

/* Turns an extent that is in no index into free memory, joined with its free neighbours. On the way of most frees:
   with one owner no question is asked, and the index is changed once. */
static inline void extent_coalesce_locked(struct sg_region *region, uint32_t id) SG_REQUIRES(lock)
{
    SG_ASSERT_REGION_LOCK(region);
    struct sg_extent *extent = extent_at(region, id);
    uint32_t prev = extent->prev, next = extent->next;
    bool left = prev && extent_at(region, prev)->state == SG_EXTENT_FREE;
    bool right = next && extent_at(region, next)->state == SG_EXTENT_FREE;
    if ((prev && extent_is_other(extent_at(region, prev), extent)) ||
        (next && extent_is_other(extent_at(region, next), extent))) {
        extent_coalesce_mixed_locked(region, id);
        return;
    }
    if (left) { /* the larger range first: what is then taken out below it changes nothing higher up in the index */
        struct sg_extent *other = extent_at(region, prev);
        uint32_t size = extent->size;
        other->seq = other->seq > extent->seq ? other->seq : extent->seq;
        extent_unlink_locked(region, id);
        if (right) {
            struct sg_extent *last = extent_at(region, next);
            other->seq = other->seq > last->seq ? other->seq : last->seq;
            free_resize_locked(region, prev, other->begin, other->size + size + last->size);
            free_remove_locked(region, last);
            extent_unlink_locked(region, next);
        } else {
            free_resize_locked(region, prev, other->begin, other->size + size);
        }
    } else if (right && region->lookup.cells) { /* the neighbour's entry moves down to where the joined range begins */
        struct sg_extent *other = extent_at(region, next);
        other->seq = other->seq > extent->seq ? other->seq : extent->seq;
        extent->size += other->size;
        free_pass_locked(region, next, id);
        extent_unlink_locked(region, next);
    } else if (right) {
        struct sg_extent *other = extent_at(region, next);
        uint32_t begin = extent->begin, size = extent->size;
        other->seq = other->seq > extent->seq ? other->seq : extent->seq;
        extent_unlink_locked(region, id);
        free_resize_locked(region, next, begin, size + other->size);
    } else {
        free_insert_locked(region, id);
    }
}

#endif
