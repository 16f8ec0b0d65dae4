#include "region.h"

#include <assert.h>
#include <string.h>

#include "meta.h"

/* Host memory set aside (untouched) for nodes: 16 M of them, down to 64 K where address space is short. */
enum { NODES_MOST = 1 << 24, NODES_LEAST = 1 << 16 };
/* Not given to ordinary blocks, so that growing, moving and undoing either never run out half-way. */
enum { NODES_SPARE = 1 << 12, NODES_SPARE_OF_CLAIM = NODES_SPARE / 4, NODES_SPARE_OF_CUT = NODES_SPARE / 8 };

bool sg_nodes_init(struct sg_nodes *nodes)
{
    for (uint32_t capacity = NODES_MOST; capacity >= NODES_LEAST; capacity /= 2) {
        struct sg_node *memory = sg_meta_map(capacity * sizeof *memory);
        if (memory) {
            *nodes = (struct sg_nodes){.node = memory, .used = 1, .capacity = capacity};
            return true;
        }
    }
    return false;
}

void sg_nodes_fini(struct sg_nodes *nodes)
{
    sg_meta_unmap(nodes->node, nodes->capacity * sizeof *nodes->node);
    *nodes = (struct sg_nodes){0};
}

static inline bool nodes_left(const struct sg_nodes *nodes, uint32_t want)
{
    return nodes->capacity - nodes->live > want;
}

/* Callers have asked nodes_left(). */
static uint32_t node_new(struct sg_nodes *nodes)
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

static void node_drop(struct sg_nodes *nodes, uint32_t id)
{
    nodes->live--;
    nodes->node[id].state = SG_NODE_UNUSED;
    nodes->node[id].next = nodes->unused;
    nodes->unused = id;
}

uint32_t sg_node_new(struct sg_nodes *nodes)
{
    return nodes_left(nodes, NODES_SPARE) ? node_new(nodes) : 0;
}

void sg_node_drop(struct sg_nodes *nodes, uint32_t node)
{
    node_drop(nodes, node);
}

static inline struct sg_node *at(const struct sg_region *region, uint32_t id)
{
    return &region->nodes->node[id];
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

static inline void free_insert(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t slot = node->begin >> region->slot_shift;
    assert(sg_index_get(&region->free_index, slot) == 0);
    node->state = SG_NODE_FREE;
    region->free_at[slot] = id;
    sg_index_set(&region->free_index, slot, (int32_t)node->size);
    region->whole_free += pages_inside(region, node->begin, node->size);
}

static inline void free_remove(struct sg_region *region, const struct sg_node *node)
{
    sg_index_set(&region->free_index, node->begin >> region->slot_shift, 0);
    region->whole_free -= pages_inside(region, node->begin, node->size);
}

/* Moves the bounds of a free range. */
static inline void free_resize(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t size)
{
    struct sg_node *node = at(region, id);
    uint32_t old = node->begin >> region->slot_shift, slot = begin >> region->slot_shift;
    region->whole_free -= pages_inside(region, node->begin, node->size);
    region->whole_free += pages_inside(region, begin, size);
    node->begin = begin;
    node->size = size;
    if (old != slot)
        region->free_at[slot] = id;
    sg_index_move(&region->free_index, old, slot, (int32_t)size);
}

static void hole_insert(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t page = page_of(region, node->begin);
    assert(node->begin % region->page_units == 0 && node->size % region->page_units == 0);
    node->state = SG_NODE_HOLE;
    region->hole_at[page] = id;
    sg_index_set(&region->hole_index, page, (int32_t)page_of(region, node->size));
}

static void hole_remove(struct sg_region *region, const struct sg_node *node)
{
    sg_index_set(&region->hole_index, page_of(region, node->begin), 0);
}

bool sg_region_init(struct sg_region *region, struct sg_nodes *nodes, CUdeviceptr base, uint64_t bytes, uint64_t page_bytes, uint32_t slot_shift)
{
    assert(bytes % page_bytes == 0 && bytes >> SG_UNIT_SHIFT <= INT32_MAX && nodes_left(nodes, 1));
    uint32_t units = (uint32_t)(bytes >> SG_UNIT_SHIFT), page_units = (uint32_t)(page_bytes >> SG_UNIT_SHIFT);
    uint32_t pages = units / page_units, slots = (units >> slot_shift) + 1;
    *region = (struct sg_region){.nodes = nodes, .base = base, .units = units, .page_units = page_units, .pages = pages, .slot_shift = slot_shift};
    if ((page_units & (page_units - 1)) == 0)
        region->page_shift = (uint32_t)__builtin_ctz(page_units);
    /* Where a slot is one unit only one node starts in it, so one table does for both. */
    uint32_t block_slots = slot_shift ? slots : 0;
    region->tables_bytes = pages * (sizeof *region->handle + sizeof *region->hole_at + sizeof *region->pin) + slots * sizeof *region->free_at +
                           block_slots * sizeof *region->block_at;
    region->tables = sg_meta_map(region->tables_bytes);
    bool have_free = sg_index_init(&region->free_index, slots), have_holes = sg_index_init(&region->hole_index, pages);
    if (!region->tables || !have_free || !have_holes) {
        sg_region_fini(region);
        return false;
    }
    region->handle = region->tables;
    region->hole_at = (uint32_t *)(region->handle + pages);
    region->free_at = region->hole_at + pages;
    region->block_at = slot_shift ? region->free_at + slots : region->free_at;
    region->pin = (uint8_t *)(region->free_at + slots + block_slots);
    region->caches = slot_shift == 0;
    region->first = node_new(nodes);
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
    if (!nodes_left(region->nodes, 1) || !sg_region_init(&made, region->nodes, region->base, bytes, bytes, slot_shift))
        return false;
    made.index = region->index;
    made.reserved = region->reserved;
    at(&made, made.first)->region = region->index;
    node_drop(region->nodes, region->first);
    sg_region_fini(region);
    *region = made;
    return true;
}

/* Puts a new node with these bounds after `left`. */
static uint32_t insert_after(struct sg_region *region, uint32_t left, uint32_t begin, uint32_t size)
{
    uint32_t id = node_new(region->nodes), right = at(region, left)->next;
    *at(region, id) = (struct sg_node){.begin = begin, .size = size, .prev = left, .next = right, .region = region->index};
    at(region, left)->next = id;
    if (right)
        at(region, right)->prev = id;
    return id;
}

/* Puts a new node with these bounds before `right`. */
static uint32_t insert_before(struct sg_region *region, uint32_t right, uint32_t begin, uint32_t size)
{
    uint32_t left = at(region, right)->prev;
    if (left)
        return insert_after(region, left, begin, size);
    uint32_t id = node_new(region->nodes);
    *at(region, id) = (struct sg_node){.begin = begin, .size = size, .next = right, .region = region->index};
    at(region, right)->prev = id;
    region->first = id;
    return id;
}

static void unlink_node(struct sg_region *region, uint32_t id)
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

/* Fibonacci hashing of a size to its bin. */
static inline struct sg_bin *bin_of(struct sg_region *region, uint32_t units)
{
    return &region->bin[(units * UINT32_C(0x9e3779b9)) >> (32 - __builtin_ctz(SG_BINS))];
}

uint32_t sg_region_take(struct sg_region *region, uint32_t units, bool high)
{
    struct sg_bin *bin = bin_of(region, units);
    if (bin->count && bin->units == units) {
        uint32_t cached = bin->top;
        bin->top = at(region, cached)->later;
        bin->count--;
        region->cached--;
        region->whole_cached -= pages_inside(region, at(region, cached)->begin, units);
        block_insert(region, cached);
        return cached;
    }
    uint32_t slot = high ? sg_index_last(&region->free_index, region->free_index.slots, (int32_t)units)
                         : sg_index_first(&region->free_index, 0, (int32_t)units);
    if (slot == SG_INDEX_NONE)
        return 0;
    uint32_t id = region->free_at[slot];
    struct sg_node *node = at(region, id);
    assert(node->state == SG_NODE_FREE && node->size >= units);
    uint32_t rest = node->size - units;
    if (rest == 0) {
        free_remove(region, node);
    } else if (!nodes_left(region->nodes, NODES_SPARE)) {
        return 0;
    } else if (high) {
        free_resize(region, id, node->begin, rest);
        id = insert_after(region, id, node->begin + rest, units);
    } else {
        uint32_t begin = node->begin;
        free_resize(region, id, begin + units, rest);
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

uint32_t sg_region_block_at(const struct sg_region *region, uint32_t position)
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

/* Turns a node that is in no index into free memory, joined with its free neighbours. */
static void become_free(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t prev = node->prev, next = node->next;
    bool left = prev && at(region, prev)->state == SG_NODE_FREE;
    bool right = next && at(region, next)->state == SG_NODE_FREE;
    if (left) { /* the larger range first: what is then taken out below it changes nothing higher up in the index */
        struct sg_node *other = at(region, prev);
        uint32_t size = node->size;
        unlink_node(region, id);
        if (right) {
            struct sg_node *last = at(region, next);
            free_resize(region, prev, other->begin, other->size + size + last->size);
            free_remove(region, last);
            unlink_node(region, next);
        } else {
            free_resize(region, prev, other->begin, other->size + size);
        }
    } else if (right) { /* the neighbour's entry moves down to where the joined range begins */
        uint32_t begin = node->begin, size = node->size;
        unlink_node(region, id);
        free_resize(region, next, begin, size + at(region, next)->size);
    } else {
        free_insert(region, id);
    }
}

static void bin_empty(struct sg_region *region, struct sg_bin *bin)
{
    for (uint32_t id = bin->top, later; bin->count; id = later) {
        later = at(region, id)->later;
        bin->count--;
        region->cached--;
        region->whole_cached -= pages_inside(region, at(region, id)->begin, at(region, id)->size);
        become_free(region, id);
    }
}

bool sg_region_flush(struct sg_region *region)
{
    bool any = region->cached > 0;
    for (int i = 0; region->cached; i++)
        bin_empty(region, &region->bin[i]);
    return any;
}

void sg_region_release(struct sg_region *region, uint32_t block)
{
    struct sg_node *node = at(region, block);
    assert(node->state == SG_NODE_BLOCK || node->state == SG_NODE_PENDING);
    if (!region->caches) {
        become_free(region, block);
        return;
    }
    struct sg_bin *bin = bin_of(region, node->size);
    if (bin->units != node->size || bin->count == SG_BIN_DEPTH) {
        bin_empty(region, bin);
        bin->units = node->size;
    }
    node->state = SG_NODE_CACHED;
    node->later = bin->top;
    bin->top = block;
    bin->count++;
    region->cached++;
    region->whole_cached += pages_inside(region, node->begin, node->size);
}

static bool is_open(const struct sg_node *node)
{
    return node->state == SG_NODE_FREE || node->state == SG_NODE_HOLE;
}

/* Prices [begin, begin + units), which starts in the open node `id`. */
static struct sg_place price(const struct sg_region *region, uint32_t id, uint32_t begin, uint32_t units)
{
    struct sg_place place = {.begin = begin, .units = units, .node = id};
    uint32_t end = begin + units;
    for (; id && at(region, id)->begin < end; id = at(region, id)->next) {
        const struct sg_node *node = at(region, id);
        uint32_t from = node->begin > begin ? node->begin : begin, to = end_of(node) < end ? end_of(node) : end;
        if (node->state == SG_NODE_HOLE)
            place.new_pages += page_of(region, to - 1) - page_of(region, from) + 1;
        else /* what it leaves of this range may still hold whole pages */
            place.whole += pages_inside(region, node->begin, node->size) - pages_inside(region, node->begin, from - node->begin) -
                           pages_inside(region, to, end_of(node) - to);
    }
    return place;
}

struct search {
    uint32_t units;
    bool high, any;
    enum sg_thrift thrift;
    struct sg_place best;
};

static void consider(struct search *search, struct sg_place place)
{
    uint32_t cost = place.new_pages, least = search->best.new_pages;
    if (search->thrift == SG_FEWEST_WHOLE) {
        cost += place.whole;
        least += search->best.whole;
    }
    bool nearer = search->high ? place.begin > search->best.begin : place.begin < search->best.begin;
    if (!search->any || cost < least || (cost == least && nearer))
        search->best = place;
    search->any = true;
}

/* The open node at or before `id` that holds `position`. */
static uint32_t back_to(const struct sg_region *region, uint32_t id, uint32_t position)
{
    while (at(region, id)->begin > position)
        id = at(region, id)->prev;
    return id;
}

/* Tries, in the open stretch from node `left` to node `right`, each place that starts where a piece starts or ends
   where one ends: between those, sliding only adds pages. */
static void try_stretch(const struct sg_region *region, uint32_t left, uint32_t right, struct search *search)
{
    uint32_t begin = at(region, left)->begin, end = end_of(at(region, right)), units = search->units;
    if (end - begin < units)
        return;
    for (uint32_t id = left;; id = at(region, id)->next) {
        const struct sg_node *node = at(region, id);
        if ((node->state == SG_NODE_FREE || id == left) && end - node->begin >= units)
            consider(search, price(region, id, node->begin, units));
        if ((node->state == SG_NODE_FREE || id == right) && end_of(node) - begin >= units) {
            uint32_t from = end_of(node) - units;
            consider(search, price(region, back_to(region, id, from), from, units));
        }
        if (id == right)
            return;
    }
}

bool sg_region_find_place(const struct sg_region *region, uint32_t units, bool high, enum sg_thrift thrift, struct sg_place *ret)
{
    struct search search = {.units = units, .high = high, .thrift = thrift};
    uint32_t page = 0;
    while (page < region->pages && (page = sg_index_first(&region->hole_index, page, 1)) != SG_INDEX_NONE) {
        uint32_t left = region->hole_at[page], right = left;
        while (at(region, left)->prev && is_open(at(region, at(region, left)->prev)))
            left = at(region, left)->prev;
        while (at(region, right)->next && is_open(at(region, at(region, right)->next)))
            right = at(region, right)->next;
        try_stretch(region, left, right, &search);
        page = page_of(region, end_of(at(region, right)) - 1) + 1;
    }
    if (search.any)
        *ret = search.best;
    return search.any;
}

/* Cuts [begin, end) out of the open node `id` and makes it busy; the rest keeps its state. Two nodes must be left. */
static uint32_t cut_out(struct sg_region *region, uint32_t id, uint32_t begin, uint32_t end)
{
    struct sg_node *node = at(region, id);
    bool is_hole = node->state == SG_NODE_HOLE;
    uint32_t node_end = end_of(node);
    if (is_hole)
        hole_remove(region, node);
    else
        free_remove(region, node);
    if (node->begin < begin) {
        uint32_t left = insert_before(region, id, node->begin, begin - node->begin);
        if (is_hole)
            hole_insert(region, left);
        else
            free_insert(region, left);
    }
    if (end < node_end) {
        uint32_t right = insert_after(region, id, end, node_end - end);
        if (is_hole)
            hole_insert(region, right);
        else
            free_insert(region, right);
    }
    node->begin = begin;
    node->size = end - begin;
    node->state = SG_NODE_BUSY;
    return id;
}

uint32_t sg_region_claim(struct sg_region *region, const struct sg_place *place)
{
    uint32_t id = place->node, end = place->begin + place->units;
    if (!nodes_left(region->nodes, NODES_SPARE_OF_CLAIM)) /* so that its end has some, whatever is cut meanwhile */
        return 0;
    uint32_t busy = 0;
    while (id && at(region, id)->begin < end) {
        struct sg_node *node = at(region, id);
        uint32_t next = node->next;
        uint32_t from = node->begin > place->begin ? node->begin : place->begin;
        uint32_t to = end_of(node) < end ? end_of(node) : end;
        if (node->state == SG_NODE_HOLE) { /* whole pages only */
            from = page_of(region, from) * region->page_units;
            to = (page_of(region, to - 1) + 1) * region->page_units;
        }
        uint32_t part = cut_out(region, id, from, to);
        if (busy) {
            at(region, busy)->size += at(region, part)->size;
            unlink_node(region, part);
        } else {
            busy = part;
        }
        id = next;
    }
    return busy;
}

uint32_t sg_region_commit(struct sg_region *region, uint32_t busy, const struct sg_place *place)
{
    struct sg_node *node = at(region, busy);
    assert(node->state == SG_NODE_BUSY);
    uint32_t begin = node->begin, end = end_of(node), block_end = place->begin + place->units;
    node->begin = place->begin;
    node->size = place->units;
    block_insert(region, busy);
    if (begin < place->begin)
        become_free(region, insert_before(region, busy, begin, place->begin - begin));
    if (block_end < end)
        become_free(region, insert_after(region, busy, block_end, end - block_end));
    return busy;
}

/* Turns a node that is in no index into a hole, joined with neighbouring holes. */
static void become_hole(struct sg_region *region, uint32_t id)
{
    struct sg_node *node = at(region, id);
    uint32_t prev = node->prev, next = node->next;
    if (next && at(region, next)->state == SG_NODE_HOLE) {
        hole_remove(region, at(region, next));
        node->size += at(region, next)->size;
        unlink_node(region, next);
    }
    if (prev && at(region, prev)->state == SG_NODE_HOLE) {
        hole_remove(region, at(region, prev));
        at(region, prev)->size += node->size;
        unlink_node(region, id);
        id = prev;
    }
    hole_insert(region, id);
}

static enum sg_node_state after_abandon(const struct sg_region *region, uint32_t page)
{
    return region->handle[page] == SG_PAGE_LOST ? SG_NODE_BUSY : region->handle[page] ? SG_NODE_FREE : SG_NODE_HOLE;
}

void sg_region_abandon(struct sg_region *region, uint32_t busy)
{
    struct sg_node *node = at(region, busy);
    assert(node->state == SG_NODE_BUSY);
    for (;;) {
        uint32_t begin = node->begin, end = end_of(node), page = page_of(region, begin);
        enum sg_node_state becomes = after_abandon(region, page);
        uint32_t stop = page + 1;
        while (stop * region->page_units < end && after_abandon(region, stop) == becomes)
            stop++;
        uint32_t cut = stop * region->page_units < end ? stop * region->page_units : end;
        uint32_t rest = cut < end ? insert_after(region, busy, cut, end - cut) : 0;
        if (rest)
            at(region, rest)->state = SG_NODE_BUSY;
        node->size = cut - begin;
        if (becomes == SG_NODE_FREE)
            become_free(region, busy);
        else if (becomes == SG_NODE_HOLE)
            become_hole(region, busy);
        if (!rest)
            return;
        busy = rest;
        node = at(region, busy);
    }
}

uint32_t sg_region_cut(struct sg_region *region, uint32_t before, uint32_t want, uint32_t *ret_first, uint32_t *ret_busy)
{
    if (!nodes_left(region->nodes, NODES_SPARE_OF_CUT))
        return 0;
    uint32_t limit = before < region->pages ? before * region->page_units : region->units;
    uint32_t slot = (limit >> region->slot_shift) + 1;
    while ((slot = sg_index_last(&region->free_index, slot, (int32_t)region->page_units)) != SG_INDEX_NONE) {
        uint32_t id = region->free_at[slot];
        const struct sg_node *node = at(region, id);
        uint32_t from = page_of(region, node->begin + region->page_units - 1), to = page_of(region, end_of(node));
        if (to > before)
            to = before;
        /* The highest run of unpinned pages in this range. */
        while (to > from && region->pin[to - 1])
            to--;
        uint32_t first = to;
        while (first > from && to - first < want && !region->pin[first - 1])
            first--;
        if (to > first) {
            *ret_first = first;
            *ret_busy = cut_out(region, id, first * region->page_units, to * region->page_units);
            return to - first;
        }
    }
    return 0;
}

void sg_region_cut_done(struct sg_region *region, uint32_t busy)
{
    assert(at(region, busy)->state == SG_NODE_BUSY);
    become_hole(region, busy);
}

void sg_region_cut_undone(struct sg_region *region, uint32_t busy)
{
    assert(at(region, busy)->state == SG_NODE_BUSY);
    become_free(region, busy);
}

uint32_t sg_region_idle(const struct sg_region *region)
{
    uint32_t idle = region->whole_free;
    if (region->pinned == 0 || idle == 0)
        return idle;
    for (uint32_t slot = 0; (slot = sg_index_first(&region->free_index, slot, (int32_t)region->page_units)) != SG_INDEX_NONE; slot++) {
        const struct sg_node *node = at(region, region->free_at[slot]);
        uint32_t to = page_of(region, end_of(node));
        for (uint32_t page = page_of(region, node->begin + region->page_units - 1); page < to; page++)
            idle -= region->pin[page];
    }
    return idle;
}

uint32_t sg_region_largest(const struct sg_region *region)
{
    return (uint32_t)sg_index_largest(&region->free_index);
}

void sg_region_check(const struct sg_region *region)
{
#ifdef NDEBUG
    (void)region;
#else
    uint32_t position = 0, prev = 0, whole = 0;
    for (uint32_t id = region->first; id; id = at(region, id)->next) {
        const struct sg_node *node = at(region, id);
        assert(node->begin == position && node->size > 0 && node->prev == prev);
        uint32_t slot = node->begin >> region->slot_shift;
        if (node->state == SG_NODE_FREE) {
            assert(region->free_at[slot] == id && sg_index_get(&region->free_index, slot) == (int32_t)node->size);
            whole += pages_inside(region, node->begin, node->size);
        }
        if (node->state == SG_NODE_BLOCK)
            assert(region->block_at[slot] == id);
        if (node->state == SG_NODE_HOLE)
            assert(region->hole_at[page_of(region, node->begin)] == id);
        if (node->state != SG_NODE_BUSY) {
            uint32_t last = page_of(region, node->begin + node->size - 1);
            for (uint32_t page = page_of(region, node->begin); page <= last; page++)
                assert((region->handle[page] == 0) == (node->state == SG_NODE_HOLE));
        }
        if (prev && (node->state == SG_NODE_FREE || node->state == SG_NODE_HOLE))
            assert(at(region, prev)->state != node->state);
        position += node->size;
        prev = id;
    }
    assert(position == region->units && whole == region->whole_free);
#endif
}
