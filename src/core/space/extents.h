/* What the files that work on a region share: nodes in address order, and the ranges that are free or holes. Not for
   others. */
#ifndef SG_REGION_PARTS_H
#define SG_REGION_PARTS_H

#include <assert.h>

#include "space/region.h"
#include "wrap.h"

/* Not given to ordinary blocks, so that growing, moving and undoing either never run out half-way. */
enum { NODES_SPARE_OF_CLAIM = SG_NODES_SPARE / 4, NODES_SPARE_OF_CUT = SG_NODES_SPARE / 8 };

static inline bool nodes_left(const struct sg_nodes *nodes, uint32_t want)
{
    return nodes->capacity - nodes->live > want;
}

/* Callers have asked nodes_left(). */
static inline uint32_t node_new(struct sg_nodes *nodes)
{
    uint32_t id = nodes->unused;
    nodes->live++;
    if (id)
        nodes->unused = nodes->node[id].next;
    else
        id = nodes->used++;
    assert(id < nodes->capacity);
    return id;
}

static inline void node_drop(struct sg_nodes *nodes, uint32_t id)
{
    nodes->live--;
    nodes->node[id].state = SG_NODE_UNUSED;
    if (id >= nodes->capacity)
        return; /* a cell is for whatever begins there */
    nodes->node[id].next = nodes->unused;
    nodes->unused = id;
}

static inline struct sg_node *at(const struct sg_region *region, uint32_t id)
{
    return &region->node[id];
}

/* A node for what begins at `begin`: its cell's if that is unused. */
static inline uint32_t node_new_at(struct sg_region *region, uint32_t begin)
{
    uint32_t cell = begin >> SG_CELL_SHIFT, id = region->cell_first + cell;
    if (cell >= region->cells || at(region, id)->state != SG_NODE_UNUSED)
        return node_new(region->nodes);
    region->nodes->live++;
    return id;
}

/* The free range that begins in a slot of addresses in which one does. */
static inline uint32_t free_in_slot(const struct sg_region *region, uint32_t slot)
{
    /* there are cells only where a slot is a unit */
    uint32_t cell = slot >> SG_CELL_SHIFT, id = region->cell_first + cell;
    bool is = cell < region->cells && at(region, id)->begin == slot && at(region, id)->state == SG_NODE_FREE;
    return is ? id : region->free_at[slot];
}

static inline uint32_t end_of(const struct sg_node *node)
{
    return node->begin + node->size;
}

static inline uint32_t page_of(const struct sg_region *region, uint32_t position)
{
    return region->page_shift ? position >> region->page_shift : position / region->page_units;
}

/* Pages that lie entirely inside [begin, begin + size). */
static inline uint32_t pages_inside(const struct sg_region *region, uint32_t begin, uint32_t size)
{
    if (size < region->page_units)
        return 0;
    uint32_t from = page_of(region, begin + region->page_units - 1), to = page_of(region, begin + size);
    return to > from ? to - from : 0;
}

/* The position of the highest bit, and SG_SIZE_CLASS_BITS below it. */
static inline uint32_t class_of(uint32_t size)
{
    enum { CLASSES = 1 << SG_SIZE_CLASS_BITS };
    uint32_t high = 31 - (uint32_t)__builtin_clz(size);
    return high * CLASSES + (high >= SG_SIZE_CLASS_BITS ? size >> (high - SG_SIZE_CLASS_BITS) & (CLASSES - 1) : 0);
}

/* What only regions with owners need (stream_extents.c): the lists of one more owner, or `common`; all free ranges into
   lists. */
struct sg_lists *sg_region_make_lists(struct sg_region *region, uint32_t owner);
void sg_region_make_listed(struct sg_region *region);
/* [begin, begin + size) has become free, for all after some work. */
void sg_region_note_after(struct sg_region *region, uint32_t begin, uint32_t size, struct sg_after after);

static inline struct sg_lists *lists_of(struct sg_region *region, uint32_t owner)
{
    struct sg_lists *lists = region->lists[owner];
    if (lists)
        return lists;
    return owner == 0 || region->listless >> owner & 1 ? &region->common : sg_region_make_lists(region, owner);
}

/* The bit of `stocked` for some lists that hold what is `owner`'s. */
static inline uint64_t stock_bit(const struct sg_region *region, const struct sg_lists *lists, uint32_t owner)
{
    return lists == &region->common ? 1 : UINT64_C(1) << owner;
}

static inline bool lists_empty(const struct sg_lists *lists)
{
    uint64_t any = 0;
    for (uint32_t word = 0; word < SG_CLASSES / 64; word++)
        any |= lists->any[word];
    return any == 0;
}

static inline void class_insert(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    region->stays = 0;
    struct sg_lists *lists = lists_of(region, node->owner);
    uint32_t class = class_of(node->size), first = lists->first[class];
    node->of_class.less = 0;
    node->of_class.more = first;
    if (first)
        at(region, first)->of_class.less = id;
    lists->first[class] = id;
    lists->any[class / 64] |= UINT64_C(1) << class % 64;
    region->stocked |= stock_bit(region, lists, node->owner);
}

static inline void class_remove(struct sg_region *region, const struct sg_node *node)
{
    uint32_t less = node->of_class.less, more = node->of_class.more;
    if (more)
        at(region, more)->of_class.less = less;
    if (less) {
        at(region, less)->of_class.more = more;
    } else {
        struct sg_lists *lists = lists_of(region, node->owner);
        uint32_t class = class_of(node->size);
        lists->first[class] = more;
        if (!more)
            lists->any[class / 64] &= ~(UINT64_C(1) << class % 64);
        if (!more && lists_empty(lists))
            region->stocked &= ~stock_bit(region, lists, node->owner);
    }
}

static inline void free_insert(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t slot = node->begin >> region->slot_shift;
    assert(sg_index_get(&region->free_index, slot) == 0);
    node->state = SG_NODE_FREE;
    region->free_at[slot] = id;
    sg_index_set(&region->free_index, slot, (int32_t)node->size);
    region->whole_free += pages_inside(region, node->begin, node->size);
    region->owners |= UINT64_C(1) << node->owner;
    if (region->listed)
        class_insert(region, id);
    else if (sg_has_several_bits(region->owners))
        sg_region_make_listed(region);
}

static inline void free_remove(struct sg_region *region, const struct sg_node *node)
{
    sg_index_set(&region->free_index, node->begin >> region->slot_shift, 0);
    region->whole_free -= pages_inside(region, node->begin, node->size);
    if (region->listed)
        class_remove(region, node);
}

/* Moves the bounds of a free range. */
static inline void free_resize(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t size)
{
    struct sg_node *node = at(region, id);
    uint32_t old = node->begin >> region->slot_shift, slot = begin >> region->slot_shift;
    bool moves = region->listed && class_of(node->size) != class_of(size);
    region->stays = 0;
    region->whole_free -= pages_inside(region, node->begin, node->size);
    region->whole_free += pages_inside(region, begin, size);
    if (moves)
        class_remove(region, node);
    node->begin = begin;
    node->size = size;
    if (moves)
        class_insert(region, id);
    if (old != slot)
        region->free_at[slot] = id;
    sg_index_move(&region->free_index, old, slot, (int32_t)size);
}

/* Gives what the free range `from` is, and its entry, to the node `to`, which has the bounds that it shall have. */
static inline void free_pass(struct sg_region *region, uint32_t from, uint32_t to)
{
    struct sg_node *old = at(region, from), *node = at(region, to);
    const struct sg_node bounds = *node;
    uint32_t slot = node->begin >> region->slot_shift;
    assert(region->fit == SG_FIT_LOWEST && old->state == SG_NODE_FREE);
    region->whole_free += pages_inside(region, node->begin, node->size);
    region->whole_free -= pages_inside(region, old->begin, old->size);
    if (region->listed)
        class_remove(region, old);
    *node = *old;
    node->begin = bounds.begin;
    node->size = bounds.size;
    node->prev = bounds.prev;
    node->next = bounds.next;
    if (region->listed)
        class_insert(region, to);
    region->free_at[slot] = to;
    sg_index_move(&region->free_index, old->begin >> region->slot_shift, slot, (int32_t)node->size);
}

static inline void hole_insert(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t page = page_of(region, node->begin);
    assert(node->begin % region->page_units == 0 && node->size % region->page_units == 0);
    node->state = SG_NODE_HOLE;
    region->hole_at[page] = id;
    sg_index_set(&region->hole_index, page, (int32_t)page_of(region, node->size));
}

static inline void hole_remove(struct sg_region *region, const struct sg_node *node)
{
    sg_index_set(&region->hole_index, page_of(region, node->begin), 0);
}

/* Puts a new node with these bounds after `left`. */
static inline uint32_t insert_after(struct sg_region *region, uint32_t left, uint32_t begin, uint32_t size)
{
    uint32_t id = node_new_at(region, begin), right = at(region, left)->next;
    *at(region, id) =
        (struct sg_node){.begin = begin, .size = size, .prev = left, .next = right, .region = region->index};
    at(region, left)->next = id;
    if (right)
        at(region, right)->prev = id;
    return id;
}

/* Puts a new node with these bounds before `right`. */
static inline uint32_t insert_before(struct sg_region *region, uint32_t right, uint32_t begin, uint32_t size)
{
    uint32_t left = at(region, right)->prev;
    if (left)
        return insert_after(region, left, begin, size);
    uint32_t id = node_new_at(region, begin);
    *at(region, id) = (struct sg_node){.begin = begin, .size = size, .next = right, .region = region->index};
    at(region, right)->prev = id;
    region->first = id;
    return id;
}

static inline void unlink_node(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    if (node->prev)
        at(region, node->prev)->next = node->next;
    else
        region->first = node->next;
    if (node->next)
        at(region, node->next)->prev = node->prev;
    node_drop(region->nodes, id);
}

static inline void block_insert(struct sg_region *region, uint32_t id)
{
    at(region, id)->state = SG_NODE_BLOCK;
    region->block_at[at(region, id)->begin >> region->slot_shift] = id;
}

/* Whether free memory there has belonged to more than one (nobody counts as one). */
static inline bool has_several_owners(const struct sg_region *region)
{
    return sg_has_several_bits(region->owners);
}

static inline bool is_complete(const struct sg_region *region, const struct sg_node *node)
{
    return node->owner == 0 || region->order->complete[node->owner] >= node->time;
}

/* Whether `slot` may use a free range as a whole. */
static inline bool is_usable(const struct sg_region *region, const struct sg_node *node, sg_slot slot)
{
    return node->owner == slot || is_complete(region, node) ||
           (slot && region->order->knows[slot].at[node->owner] >= node->time);
}

/* Whether two free neighbours can be one range without a loss worth mentioning, and whose it is then. Two of one
   owner always can. A complete one joins the other if that is larger, or if the complete one is less than a page. */
static inline bool may_join(const struct sg_region *region, const struct sg_node *a, const struct sg_node *b,
    uint32_t *ret_owner, uint64_t *ret_time)
{
    const struct sg_node *whose = a->time > b->time ? a : b;
    if (a->owner != b->owner) {
        bool a_complete = is_complete(region, a), b_complete = is_complete(region, b);
        const struct sg_node *larger = a->size > b->size ? a : b;
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
    *ret_time = whose->time;
    return true;
}

static inline bool has_state(const struct sg_region *region, uint32_t id, enum sg_node_state state)
{
    return id && at(region, id)->state == state;
}

static inline bool begins_in(const struct sg_region *region, uint32_t id, uint32_t slot)
{
    return at(region, id)->begin >> region->slot_shift == slot;
}

/* The free range from `id` up that begins in a slot of addresses, behind pieces held there; 0 if there is none. */
static inline uint32_t free_up_in_slot(const struct sg_region *region, uint32_t id, uint32_t slot)
{
    while (has_state(region, id, SG_NODE_HELD) && begins_in(region, id, slot))
        id = at(region, id)->next;
    return has_state(region, id, SG_NODE_FREE) && begins_in(region, id, slot) ? id : 0;
}

/* The free range from `id` down that begins in a slot of addresses, below pieces held there; 0 if none does. A held
   piece begins and ends in one slot. */
static inline uint32_t free_down_in_slot(const struct sg_region *region, uint32_t id, uint32_t slot)
{
    while (has_state(region, id, SG_NODE_HELD)) {
        assert(begins_in(region, id, slot));
        id = at(region, id)->prev;
    }
    return has_state(region, id, SG_NODE_FREE) && begins_in(region, id, slot) ? id : 0;
}

/* Turns a node that is in no index, and joins nothing, into a free range. More than two neighbours may begin in one
   slot of addresses. Only the last of them is a range. The others, shorter than a slot, are held until they can
   join. */
static inline void free_put(struct sg_region *region, uint32_t id)
{
    uint32_t slot = at(region, id)->begin >> region->slot_shift,
             below = free_down_in_slot(region, at(region, id)->prev, slot);
    if (below) {
        free_remove(region, at(region, below));
        at(region, below)->state = SG_NODE_HELD;
    }
    if (free_up_in_slot(region, at(region, id)->next, slot))
        at(region, id)->state = SG_NODE_HELD;
    else
        free_insert(region, id);
}

/* Free memory that a block was cut from the beginning of keeps [begin, begin + size). */
static inline void free_shrink(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t size)
{
    struct sg_node *node = at(region, id);
    if (free_up_in_slot(region, node->next, begin >> region->slot_shift)) {
        free_remove(region, node);
        node->begin = begin;
        node->size = size;
        node->state = SG_NODE_HELD;
    } else {
        free_resize(region, id, begin, size);
    }
}

/* Joins a node that is in no index with a neighbour that is free or held, if that may be. The neighbour's node goes. */
static inline bool absorb(struct sg_region *region, uint32_t id, uint32_t other)
{
    struct sg_node *node = at(region, id), *piece = at(region, other);
    uint32_t owner;
    uint64_t time;
    if ((piece->state != SG_NODE_FREE && piece->state != SG_NODE_HELD) || !may_join(region, node, piece, &owner, &time))
        return false;
    if (piece->state == SG_NODE_FREE)
        free_remove(region, piece);
    node->begin = piece->begin < node->begin ? piece->begin : node->begin;
    node->size += piece->size;
    node->owner = owner;
    node->time = time;
    unlink_node(region, other);
    return true;
}

/* Turns a node into free memory where owners differ, or where a neighbour is held. */
static inline void become_free_of_another(struct sg_region *region, uint32_t id)
{
    for (bool more = true; more;) {
        uint32_t prev = at(region, id)->prev, next = at(region, id)->next;
        more = (prev && absorb(region, id, prev)) || (next && absorb(region, id, next));
    }
    free_put(region, id);
}

/* Whether a neighbour is free or held, and not simply another part of what `node` is part of. */
static inline bool is_other(const struct sg_node *neighbour, const struct sg_node *node)
{
    return neighbour->state == SG_NODE_HELD || (neighbour->state == SG_NODE_FREE && neighbour->owner != node->owner);
}

/* Turns a node that is in no index into free memory, joined with its free neighbours. */
static inline void become_free(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t prev = node->prev, next = node->next;
    bool left = prev && at(region, prev)->state == SG_NODE_FREE;
    bool right = next && at(region, next)->state == SG_NODE_FREE;
    if ((prev && is_other(at(region, prev), node)) || (next && is_other(at(region, next), node))) {
        become_free_of_another(region, id);
        return;
    }
    if (left) { /* the larger range first: what is then taken out below it changes nothing higher up in the index */
        struct sg_node *other = at(region, prev);
        uint32_t size = node->size;
        other->time = other->time > node->time ? other->time : node->time;
        unlink_node(region, id);
        if (right) {
            struct sg_node *last = at(region, next);
            other->time = other->time > last->time ? other->time : last->time;
            free_resize(region, prev, other->begin, other->size + size + last->size);
            free_remove(region, last);
            unlink_node(region, next);
        } else {
            free_resize(region, prev, other->begin, other->size + size);
        }
    } else if (right && region->cells) { /* the neighbour's entry moves down to where the joined range begins */
        struct sg_node *other = at(region, next);
        other->time = other->time > node->time ? other->time : node->time;
        node->size += other->size;
        free_pass(region, next, id);
        unlink_node(region, next);
    } else if (right) {
        struct sg_node *other = at(region, next);
        uint32_t begin = node->begin, size = node->size;
        other->time = other->time > node->time ? other->time : node->time;
        unlink_node(region, id);
        free_resize(region, next, begin, size + other->size);
    } else {
        free_insert(region, id);
    }
}

#endif
