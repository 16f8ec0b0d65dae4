#include "space/extents.h"

#include <string.h>

#include "meta.h"

/* Host memory set aside (untouched) for nodes: 16 M of them and cells for 16 GiB, down to 64 K of each where address
   space is short. */
enum { NODES_MOST = 1 << 24, NODES_LEAST = 1 << 16 };

/* As many addresses again are left to the program and its driver, where there is a limit (ulimit -v). */
bool sg_nodes_init(struct sg_nodes *nodes)
{
    for (uint32_t capacity = NODES_MOST; capacity >= NODES_LEAST; capacity /= 2) {
        size_t count = 2 * (size_t)capacity;
        struct sg_node *memory = sg_meta_map(2 * count * sizeof *memory);
        if (memory) {
            sg_meta_unmap(memory + count, count * sizeof *memory);
            *nodes = (struct sg_nodes){.node = memory, .used = 1, .capacity = capacity, .cells = capacity};
            return true;
        }
    }
    return false;
}

void sg_nodes_tell(struct sg_nodes *nodes, uint32_t node, uint32_t site, uint32_t phase)
{
    if (!nodes->place)
        nodes->place = sg_meta_map((nodes->capacity + nodes->cells) * sizeof *nodes->place);
    if (nodes->place)
        nodes->place[node] = (struct sg_node_place){site, phase};
}

void sg_nodes_fini(struct sg_nodes *nodes)
{
    if (nodes->place)
        sg_meta_unmap(nodes->place, (nodes->capacity + nodes->cells) * sizeof *nodes->place);
    sg_meta_unmap(nodes->node, (nodes->capacity + nodes->cells) * sizeof *nodes->node);
    *nodes = (struct sg_nodes){0};
}

uint32_t sg_node_new(struct sg_nodes *nodes)
{
    return nodes_left(nodes, SG_NODES_SPARE) ? node_new(nodes) : 0;
}

void sg_node_drop(struct sg_nodes *nodes, uint32_t node)
{
    node_drop(nodes, node);
}

bool sg_region_init(struct sg_region *region, struct sg_nodes *nodes, CUdeviceptr base, uint64_t bytes,
    uint64_t page_bytes, uint32_t slot_shift)
{
    assert(bytes % page_bytes == 0 && bytes >> SG_UNIT_SHIFT <= INT32_MAX && nodes_left(nodes, 1));
    uint32_t units = (uint32_t)(bytes >> SG_UNIT_SHIFT), page_units = (uint32_t)(page_bytes >> SG_UNIT_SHIFT);
    uint32_t pages = units / page_units, slots = (units >> slot_shift) + 1;
    *region = (struct sg_region){.nodes = nodes, .node = nodes->node, .base = base, .units = units,
        .page_units = page_units, .pages = pages, .slot_shift = slot_shift};
    if ((page_units & (page_units - 1)) == 0)
        region->page_shift = (uint32_t)__builtin_ctz(page_units);
    /* Where a slot is one unit only one node starts in it, so one table does for both. */
    uint32_t block_slots = slot_shift ? slots : 0;
    region->tables_bytes = pages * (sizeof *region->after + sizeof *region->handle + sizeof *region->twin +
                                       sizeof *region->hole_at + sizeof *region->pin) +
                           slots * sizeof *region->free_at + block_slots * sizeof *region->block_at;
    region->tables = sg_meta_map(region->tables_bytes);
    region->fit = slot_shift == 0 ? SG_FIT_LOWEST : SG_FIT_SMALLEST;
    /* Where the lists say which range is the smallest, the index serves only who looks for pages. */
    bool have_free =
        sg_index_init(&region->free_index, slots, region->fit == SG_FIT_LOWEST ? SG_INDEX_EAGER : SG_INDEX_LATE);
    bool have_holes = sg_index_init(&region->hole_index, pages, SG_INDEX_EAGER);
    if (!region->tables || !have_free || !have_holes) {
        sg_region_fini(region);
        return false;
    }
    region->after = region->tables;
    region->handle = (CUmemGenericAllocationHandle *)(region->after + pages);
    region->twin = (uint64_t *)(region->handle + pages);
    region->hole_at = (uint32_t *)(region->twin + pages);
    region->free_at = region->hole_at + pages;
    region->block_at = slot_shift ? region->free_at + slots : region->free_at;
    region->pin = (uint8_t *)(region->free_at + slots + block_slots);
    if (region->fit == SG_FIT_LOWEST && !nodes->cells_taken) {
        nodes->cells_taken = true;
        region->cell_first = nodes->capacity;
        region->cells = nodes->cells;
    }
    region->listed = region->fit == SG_FIT_SMALLEST;
    region->first = node_new_at(region, 0);
    *at(region, region->first) = (struct sg_node){.size = units};
    hole_insert(region, region->first);
    return true;
}

void sg_region_fini(struct sg_region *region)
{
    sg_index_fini(&region->free_index);
    sg_index_fini(&region->hole_index);
    sg_meta_unmap(region->tables, region->tables_bytes);
    region->tables = NULL;
    for (uint32_t owner = 0; owner < SG_SLOTS; owner++)
        sg_meta_unmap(region->lists[owner], sizeof *region->lists[owner]);
}

void sg_region_unmake(struct sg_region *region)
{
    assert(sg_region_is_hole(region));
    if (region->cells)
        region->nodes->cells_taken = false;
    node_drop(region->nodes, region->first);
    sg_region_fini(region);
}

bool sg_region_is_hole(const struct sg_region *region)
{
    const struct sg_node *node = at(region, region->first);
    return node->state == SG_NODE_HOLE && node->size == region->units;
}

bool sg_region_remake(struct sg_region *region, uint64_t bytes, uint32_t slot_shift)
{
    struct sg_region made;
    assert(sg_region_is_hole(region) && bytes <= region->reserved);
    if (!sg_region_init(&made, region->nodes, region->base, bytes, bytes, slot_shift))
        return false;
    made.index = region->index;
    made.reserved = region->reserved;
    made.order = region->order;
    at(&made, made.first)->region = region->index;
    sg_region_unmake(region);
    *region = made;
    return true;
}

/* The bin of a size and an owner. The small region has one for each size; the others keep one block of an owner at
   most. */
static inline uint32_t bin_of(const struct sg_region *region, uint32_t units, uint32_t owner)
{
    uint32_t of_owner = owner % SG_BIN_OWNERS * SG_BIN_SIZES;
    return region->fit == SG_FIT_SMALLEST ? owner : of_owner + units % SG_BIN_SIZES;
}

/* Whether a range could become larger where it is: the addresses behind it have no memory yet. */
static inline bool can_grow(const struct sg_region *region, uint32_t id)
{
    return has_state(region, at(region, id)->next, SG_NODE_HOLE);
}

/* The size for which a range counts when the least is wanted. `by_reach`: what it could grow to, next to which all
   others are small. */
static inline uint32_t worth(const struct sg_region *region, uint32_t id, bool by_reach)
{
    return at(region, id)->size + (by_reach && can_grow(region, id) ? (uint32_t)INT32_MAX : 0);
}

/* The smallest of the first few ranges of a class that hold `units`; of all, where the first few do not and `all`. With
   `grows` those that can grow don't count: one of them is put there if nothing is yet; and of equals it is the
   lowest. */
static inline uint32_t smallest_of_class(const struct sg_region *region, uint32_t first, uint32_t units, sg_slot slot,
    bool all, uint32_t *grows)
{
    uint32_t best = 0, least = UINT32_MAX, seen = region->fit == SG_FIT_LOWEST ? SG_RANGES_LOOKED_AT - 1 : 0;
    for (uint32_t id = first; id && (seen++ < SG_RANGES_LOOKED_AT || (all && !best));
         id = at(region, id)->of_class.more) {
        const struct sg_node *node = at(region, id);
        bool better = node->size < least || (grows && node->size == least && node->begin < at(region, best)->begin);
        if (node->size < units || !better || !is_usable(region, node, slot))
            continue;
        if (grows && can_grow(region, id)) {
            *grows = *grows ? *grows : id;
        } else {
            best = id;
            least = node->size;
        }
    }
    return best;
}

/* A range of some lists that holds `units` and is close to the smallest one that does; 0 if none does. `by_reach`: one
   that can grow only where there is no other. */
static uint32_t smallest_listed(const struct sg_region *region, const struct sg_lists *lists, uint32_t units,
    sg_slot slot, bool all, bool by_reach)
{
    uint32_t grows = 0, class = class_of(units),
             best = smallest_of_class(region, lists->first[class], units, slot, all, by_reach ? &grows : NULL);
    if (best)
        return best;
    for (uint32_t word = ++class / 64; word < SG_CLASSES / 64; class = ++word * 64) {
        for (uint64_t larger = lists->any[word] & ~((UINT64_C(1) << class % 64) - 1); larger; larger &= larger - 1) {
            uint32_t first = lists->first[word * 64 + (uint32_t)__builtin_ctzll(larger)];
            best = smallest_of_class(region, first, units, slot, all, by_reach ? &grows : NULL);
            if (best)
                return best;
        }
    }
    return grows;
}

/* Of what others own, as far as `slot` has come after them. */
static uint32_t smallest_of_others(const struct sg_region *region, uint32_t units, sg_slot slot, bool by_reach)
{
    uint32_t best = 0;
    for (uint64_t left = region->stocked & ~(UINT64_C(1) << slot | 1); left; left &= left - 1) {
        unsigned owner = (unsigned)__builtin_ctzll(left);
        if (!region->order->complete[owner] && !(slot && region->order->knows[slot].at[owner]))
            continue;
        uint32_t id = smallest_listed(region, region->lists[owner], units, slot, /* all */ false, by_reach);
        if (id && (!best || worth(region, id, by_reach) < worth(region, best, by_reach)))
            best = id;
    }
    return best;
}

static uint32_t smallest_range(const struct sg_region *region, uint32_t units, sg_slot slot, bool by_reach)
{
    uint32_t best =
        region->stocked & 1 ? smallest_listed(region, &region->common, units, slot, /* all */ true, by_reach) : 0;
    if (slot && region->stocked >> slot & 1) {
        uint32_t own = smallest_listed(region, region->lists[slot], units, slot, /* all */ true, by_reach);
        if (own && (!best || worth(region, own, by_reach) <= worth(region, best, by_reach)))
            best = own;
    }
    if (!region->ordered || (best && region->fit == SG_FIT_LOWEST))
        return best;
    uint32_t other = smallest_of_others(region, units, slot, by_reach);
    return other && (!best || worth(region, other, by_reach) < worth(region, best, by_reach)) ? other : best;
}

static uint32_t find_range(const struct sg_region *region, uint32_t units, enum sg_end end, sg_slot slot)
{
    bool high = end == SG_END_HIGH;
    if (!high && region->fit == SG_FIT_SMALLEST)
        return smallest_range(region, units, slot, /* by_reach */ end == SG_END_SETTLED);
    if (!high && region->listed) /* the lowest is likely another's */
        return smallest_range(region, units, slot, /* by_reach */ false);
    uint32_t from = high ? region->free_index.slots : 0;
    for (uint32_t looks = 0; looks < SG_RANGES_LOOKED_AT; looks++) {
        uint32_t found = high ? sg_index_last(&region->free_index, from, (int32_t)units)
                              : sg_index_first(&region->free_index, from, (int32_t)units);
        if (found == SG_INDEX_NONE)
            return 0;
        uint32_t id = free_in_slot(region, found);
        if (is_usable(region, at(region, id), slot))
            return id;
        from = high ? found : found + 1;
    }
    return region->listed ? smallest_range(region, units, slot, /* by_reach */ false) : 0;
}

static void bin_empty(struct sg_region *region, uint32_t index)
{
    struct sg_bin *bin = &region->bin[index];
    for (uint32_t id = bin->top, later; bin->count; id = later) {
        later = at(region, id)->later;
        bin->count--;
        region->cached--;
        region->whole_cached -= pages_inside(region, at(region, id)->begin, at(region, id)->size);
        become_free(region, id);
    }
    region->bins_used[index / 64] &= ~(UINT64_C(1) << index % 64);
}

bool sg_region_flush(struct sg_region *region)
{
    bool any = region->cached > 0;
    for (uint32_t word = 0; region->cached; word++)
        while (region->bins_used[word])
            bin_empty(region, word * 64 + (uint32_t)__builtin_ctzll(region->bins_used[word]));
    return any;
}

/* Whether another range would be taken rather than the block that is kept for `slot`, had that been joined with what is
   free behind it. (None is kept that follows a free range.) */
static bool is_outdone(const struct sg_region *region, uint32_t kept, sg_slot slot)
{
    const struct sg_node *node = at(region, kept), *next = at(region, node->next);
    const struct sg_lists *own = region->lists[slot];
    uint32_t class = class_of(node->size);
    bool joins = next->state == SG_NODE_FREE && next->owner == slot;
    if (!joins && !region->common.first[class] && !(own && own->first[class])) /* then only one of its size counts */
        return false;
    uint32_t other = smallest_range(region, node->size, slot, /* by_reach */ true);
    if (!other || other == node->next)
        return false;
    uint32_t joined = node->size + (joins ? worth(region, node->next, /* by_reach */ true) : 0),
             counts = worth(region, other, /* by_reach */ true);
    return counts < joined || (counts == joined && at(region, other)->begin < node->begin);
}

/* A block that is kept whole, of this size and usable. 0 if none is, or if `end` says that another range does
   better. */
static inline uint32_t take_cached(struct sg_region *region, uint32_t units, uint32_t owner, enum sg_end end,
    sg_slot slot)
{
    struct sg_bin *bin = &region->bin[bin_of(region, units, owner)];
    uint32_t id = bin->top;
    if (!bin->count || bin->units != units || (bin->owner != slot && !is_usable(region, at(region, id), slot)))
        return 0;
    if (units >= SG_KEPT_LEAST / SG_UNIT && end == SG_END_SETTLED && id != region->stays) {
        if (is_outdone(region, id, slot))
            return 0;
        region->stays = id;
    }
    bin->top = at(region, id)->later;
    bin->count--;
    region->cached--;
    region->whole_cached -= pages_inside(region, at(region, id)->begin, units);
    assert(region->block_at[at(region, id)->begin >> region->slot_shift] == id);
    at(region, id)->state = SG_NODE_BLOCK; /* all else is as it was: with many blocks the table is far away */
    return id;
}

uint32_t sg_region_take(struct sg_region *region, uint32_t units, enum sg_end end, sg_slot slot)
{
    uint32_t id = take_cached(region, units, slot, end, slot);
    if (!id && slot && region->cached)
        id = take_cached(region, units, 0, end, slot);
    if (id)
        return id;
    /* what is kept for others is theirs until nothing else fits */
    if (region->fit == SG_FIT_SMALLEST && region->cached)
        bin_empty(region, slot);
    id = find_range(region, units, end, slot);
    if (!id)
        return 0;
    struct sg_node *node = at(region, id);
    assert(node->state == SG_NODE_FREE && node->size >= units);
    uint32_t rest = node->size - units;
    if (rest == 0) {
        free_remove(region, node);
    } else if (!nodes_left(region->nodes, SG_NODES_SPARE)) {
        return 0;
    } else if (end == SG_END_HIGH) {
        free_resize(region, id, node->begin, rest);
        id = insert_after(region, id, node->begin + rest, units);
    } else if (region->cells) { /* the block keeps the node, which may be its cell's */
        uint32_t left = insert_after(region, id, node->begin + units, rest);
        free_pass(region, id, left);
        node->size = units;
    } else {
        uint32_t begin = node->begin;
        free_shrink(region, id, begin + units, rest);
        id = insert_before(region, id, begin, units);
    }
    block_insert(region, id);
    return id;
}

/* Entries of block_at are not cleared when their block goes: what they name says whether it is still the one. */
static inline bool is_block(const struct sg_region *region, uint32_t id, uint32_t slot)
{
    const struct sg_node *node = at(region, id);
    return node->state == SG_NODE_BLOCK && node->region == region->index && node->begin >> region->slot_shift == slot;
}

uint32_t sg_region_block_in_table(const struct sg_region *region, uint32_t position)
{
    if (position >= region->units)
        return 0;
    uint32_t slot = position >> region->slot_shift, id = region->block_at[slot];
    return id && is_block(region, id, slot) && at(region, id)->begin == position ? id : 0;
}

uint32_t sg_region_block_around(const struct sg_region *region, uint32_t position)
{
    for (uint32_t slot = position >> region->slot_shift; position < region->units; slot--) {
        uint32_t id = region->block_at[slot];
        if (id && is_block(region, id, slot) && at(region, id)->begin <= position)
            return position < end_of(at(region, id)) ? id : 0;
        if (slot == 0)
            break;
    }
    return 0;
}

void sg_region_suspend(struct sg_region *region, uint32_t block)
{
    struct sg_node *node = at(region, block);
    assert(node->state == SG_NODE_BLOCK);
    node->state = SG_NODE_PENDING;
}

void sg_region_release(struct sg_region *region, uint32_t block, sg_slot owner, uint64_t time)
{
    struct sg_node *node = at(region, block);
    assert(node->state == SG_NODE_BLOCK || node->state == SG_NODE_PENDING);
    if (owner || region->ordered) {
        /* What others wait for is the work that used it, not all that its stream has come after by now. */
        struct sg_after after = {UINT64_C(1) << owner & ~UINT64_C(1), time};
        if (owner && node->state == SG_NODE_PENDING)
            after = (struct sg_after){node->also, node->time};
        sg_region_note_after(region, node->begin, node->size, after);
    }
    node->owner = owner;
    node->time = time;
    if (region->fit == SG_FIT_SMALLEST) {
        if (region->cached)
            bin_empty(region, owner); /* one at most, until the next request: what is kept from its neighbours costs
                                         pages */
        /* One that follows a free range would be given out again in the middle of what is free, and part it. */
        if (node->size < SG_KEPT_LEAST / SG_UNIT || at(region, node->prev)->state == SG_NODE_FREE) {
            become_free(region, block);
            return;
        }
    }
    uint32_t index = bin_of(region, node->size, owner);
    struct sg_bin *bin = &region->bin[index];
    if (bin->units != node->size || bin->owner != owner || bin->count >= SG_BIN_DEPTH) {
        bin_empty(region, index);
        bin->units = node->size;
        bin->owner = owner;
    }
    node->state = SG_NODE_CACHED;
    node->later = bin->top;
    bin->top = block;
    if (bin->count++ == 0)
        region->bins_used[index / 64] |= UINT64_C(1) << index % 64;
    region->cached++;
    region->whole_cached += pages_inside(region, node->begin, node->size);
}

uint32_t sg_region_idle(const struct sg_region *region)
{
    uint32_t idle = region->whole_free;
    if ((region->pinned == 0 && !region->ordered) || idle == 0)
        return idle;
    for (uint32_t slot = 0;
         (slot = sg_index_first(&region->free_index, slot, (int32_t)region->page_units)) != SG_INDEX_NONE; slot++) {
        const struct sg_node *node = at(region, region->free_at[slot]);
        uint32_t to = page_of(region, end_of(node));
        for (uint32_t page = page_of(region, node->begin + region->page_units - 1); page < to; page++)
            idle -= !sg_region_movable(region, page);
    }
    return idle;
}

bool sg_region_awaits(const struct sg_region *region)
{
    if (!region->ordered || region->whole_free == 0)
        return false;
    for (uint32_t slot = 0;
         (slot = sg_index_first(&region->free_index, slot, (int32_t)region->page_units)) != SG_INDEX_NONE; slot++) {
        const struct sg_node *node = at(region, region->free_at[slot]);
        uint32_t to = page_of(region, end_of(node));
        for (uint32_t page = page_of(region, node->begin + region->page_units - 1); page < to; page++)
            if (!region->pin[page] && !sg_region_movable(region, page))
                return true;
    }
    return false;
}

uint32_t sg_region_shareable_pages(const struct sg_region *region, sg_slot slot)
{
    uint32_t pages = 0;
    if (!region->ordered || region->whole_free == 0)
        return 0;
    for (uint32_t at_slot = 0;
         (at_slot = sg_index_first(&region->free_index, at_slot, (int32_t)region->page_units)) != SG_INDEX_NONE;
         at_slot++) {
        const struct sg_node *node = at(region, region->free_at[at_slot]);
        uint32_t to = page_of(region, end_of(node));
        for (uint32_t page = page_of(region, node->begin + region->page_units - 1); page < to; page++)
            pages += sg_region_shareable(region, page, slot);
    }
    return pages;
}

uint32_t sg_region_largest(const struct sg_region *region)
{
    uint32_t largest = (uint32_t)sg_index_largest(&region->free_index);
    for (uint32_t word = 0; word < SG_BINS / 64; word++) {
        for (uint64_t left = region->bins_used[word]; left; left &= left - 1) {
            const struct sg_bin *bin = &region->bin[word * 64 + (uint32_t)__builtin_ctzll(left)];
            if (bin->count && bin->units > largest)
                largest = bin->units;
        }
    }
    return largest;
}
