#include "sew.h"

#include "alias.h"
#include "mappings.h"
#include "region_parts.h"

/* Of the free parts one of each size is looked at, sizes being alike within this part of a page. */
enum { SIZES = 64 };

/* Addresses that a page may have besides its own. */
enum { LENT_MOST = 32 };

/* Allocations ago: younger blocks are likely to be gone soon (docs/design.md has what that saves). */
enum { YOUNG = 32 };

/* A part of a page that may be left between others rather than that two are borrowed. */
enum { OWN_PART = 4 };

struct shelf {
    struct sg_patch of[SIZES];
};

/* Whether a part of a page may be lent: nobody remembers the page, and its bytes may be used at another address now. */
static bool may_lend(const struct sg_region *region, uint32_t page, struct sg_taker taker)
{
    return region->pin[page] < LENT_MOST * SG_PIN_TWICE && !(region->pin[page] & SG_PIN_ASKED) &&
           sg_page_is_there(region->handle[page]) &&
           (!region->ordered || sg_after_complete(region->order, region->after[page]) ||
               (taker.aliases && sg_region_shareable(region, page, taker.slot)));
}

/* What is looked for: parts for whom, and where their pages have a user that is older than `born`. */
struct search {
    struct sg_taker taker;
    uint64_t born;
    struct shelf heads, tails;
};

/* Puts a part of the free range `id` on its shelf. `beside` is what is on the same page next to it. */
static void offer(struct search *search, struct shelf *shelf, struct sg_region *region, uint32_t id, uint32_t beside,
    uint32_t begin, uint32_t end)
{
    struct sg_patch *at_size = &shelf->of[(uint64_t)(end - begin) * SIZES / region->page_units];
    bool young = has_state(region, beside, SG_NODE_BLOCK) && at(region, beside)->serial > search->born;
    if (!at_size->size && !young && may_lend(region, page_of(region, begin), search->taker))
        *at_size = (struct sg_patch){region, id, begin, end - begin};
}

/* What a region's free ranges have of pages that are partly used: at the ends of some and at the beginnings of
   others. */
static void look_through(struct sg_region *region, struct search *search)
{
    uint32_t page_units = region->page_units;
    for (uint32_t slot = 0; (slot = sg_index_first(&region->free_index, slot, 1)) != SG_INDEX_NONE; slot++) {
        uint32_t id = region->free_at[slot], begin = at(region, id)->begin, end = end_of(at(region, id));
        uint32_t first_end = (page_of(region, begin) + 1) * page_units, last_begin = page_of(region, end) * page_units;
        if (begin % page_units && end >= first_end)
            offer(search, &search->heads, region, id, at(region, id)->prev, begin, first_end);
        if (end % page_units && begin <= last_begin)
            offer(search, &search->tails, region, id, at(region, id)->next, last_begin, end);
    }
}

static uint32_t largest(const struct shelf *shelf)
{
    uint32_t size = 0;
    for (int i = SIZES - 1; i >= 0 && !size; i--)
        size = shelf->of[i].size;
    return size;
}

/* The head and tail, either of which may be none, that hold `units` together with the least left over: that lies
   between others where it is. `own`: with one of them alone, which is lent whole, what is over is in a page of the
   block's own instead, of the end of which somebody else can borrow; so for a part of `own` units the other is
   spared. */
static void choose(const struct shelf *heads, const struct shelf *tails, uint32_t units, uint32_t own,
    struct sg_sewing *ret)
{
    const struct sg_patch none = {0};
    uint32_t least = UINT32_MAX;
    bool whole = false;
    for (int i = -1; i < SIZES; i++) {
        const struct sg_patch *head = i < 0 ? &none : &heads->of[i];
        for (int k = -1; k < SIZES && (i < 0 || head->size); k++) {
            const struct sg_patch *tail = k < 0 ? &none : &tails->of[k];
            uint32_t both = head->size + tail->size;
            if (both < units)
                continue;
            bool alone = own && !(head->size && tail->size);
            uint32_t over = both - units, cost = alone ? own + over / SIZES : over;
            if (cost < least) {
                least = cost;
                whole = alone;
                ret->head = *head;
                ret->tail = *tail;
            }
        }
    }
    if (whole)
        return;
    /* Exactly so much is lent; what is over stays where it is. */
    if (ret->head.size > units) {
        ret->head.begin += ret->head.size - units;
        ret->head.size = units;
    }
    ret->tail.size = units - ret->head.size;
}

/* Finds addresses for it: in the largest hole, and not right behind what is there, which may be wanted to grow. */
static bool find_addresses(const struct sg_device *device, const struct sg_want *want, uint32_t whole,
    struct sg_sewing *ret)
{
    uint32_t pages = whole + (ret->head.size > 0) + (ret->tail.size > 0);
    for (uint32_t i = 0; i < device->region_count; i++) {
        struct sg_region *region = device->region[i];
        uint32_t room = (uint32_t)sg_index_largest(&region->hole_index);
        if (!sg_device_suits(device, i, want->class, want->lane, want->units) || room < pages ||
            sg_alias_room(device, region) < 2 || !sg_mappings_grows(device, i))
            continue;
        uint32_t hole = sg_index_first(&region->hole_index, 0, (int32_t)room),
                 gap = room - pages < pages ? room - pages : pages;
        uint32_t begin = (hole + gap + 1) * region->page_units - ret->head.size;
        if (!ret->head.size)
            begin = (hole + gap + whole) * region->page_units + ret->tail.size - want->units;
        ret->region = region;
        ret->place = (struct sg_place){.begin = begin, .units = want->units, .node = region->hole_at[hole],
            .new_pages = whole, .head = ret->head.size > 0, .tail = ret->tail.size > 0};
        return true;
    }
    return false;
}

bool sg_sew_find(const struct sg_device *device, const struct sg_want *want, uint32_t most, struct sg_sewing *ret)
{
    uint64_t page_bytes = device->page_bytes[want->class];
    uint32_t page_units = (uint32_t)(page_bytes >> SG_UNIT_SHIFT);
    struct search search = {.taker = {.slot = want->slot, .aliases = want->aliases}, .born = UINT64_MAX};
    if (want->class != SG_CLASS_REGULAR && want->class != SG_CLASS_CROWD)
        return false;
    /* What stays would keep the pages of what is gone in a moment. */
    if (want->class == SG_CLASS_CROWD)
        search.born = device->serial > YOUNG ? device->serial - YOUNG : 0;
    for (uint32_t i = 0; i < device->region_count; i++) {
        /* the small ones' own rest is theirs */
        bool larger = device->region_class[i] == SG_CLASS_REGULAR || device->region_class[i] == SG_CLASS_CROWD;
        if (larger && device->region[i]->page_units == page_units)
            look_through(device->region[i], &search);
    }
    uint32_t borrowed = largest(&search.heads) + largest(&search.tails);
    uint32_t whole = borrowed < want->units ? (want->units - borrowed + page_units - 1) / page_units : 0;
    if (!borrowed || whole >= most)
        return false;
    *ret = (struct sg_sewing){0};
    choose(&search.heads, &search.tails, want->units - whole * page_units,
        device->old.first ? page_units / OWN_PART : 0, ret);
    return find_addresses(device, want, whole, ret);
}

/* The range that was found may have been cut meanwhile, for the other part. */
static void lend(struct sg_patch *patch)
{
    uint32_t id = patch->node;
    if (!patch->size)
        return;
    while (end_of(at(patch->region, id)) <= patch->begin)
        id = at(patch->region, id)->next;
    patch->node = sg_region_cut_part(patch->region, id, patch->begin, patch->begin + patch->size);
}

void sg_sew_lend(struct sg_sewing *sewing)
{
    lend(&sewing->head);
    lend(&sewing->tail);
}

void sg_sew_undo(struct sg_sewing *sewing)
{
    if (sewing->head.size)
        sg_region_cut_undone(sewing->head.region, sewing->head.node);
    if (sewing->tail.size)
        sg_region_cut_undone(sewing->tail.region, sewing->tail.node);
}

/* The page that holds `others`, a busy node beside the block, is lent from home. */
static void note(struct sg_device *device, struct sg_region *region, uint32_t others, const struct sg_patch *patch)
{
    uint32_t page = page_of(region, at(region, others)->begin);
    sg_alias_note(device, region, page, patch->region, page_of(patch->region, patch->begin));
    region->after[page] = (struct sg_after){0};
    at(region, others)->lent = patch->node;
    at(region, others)->later = device->sewn;
    device->sewn = others;
    sg_count(device, SG_STAT_sewn_pages, 1);
}

void sg_sew_commit(struct sg_device *device, const struct sg_sewing *sewing, uint32_t block)
{
    struct sg_region *region = sewing->region;
    if (sewing->head.size)
        note(device, region, at(region, block)->prev, &sewing->head);
    if (sewing->tail.size)
        note(device, region, at(region, block)->next, &sewing->tail);
}

/* The free range that holds all of what was lent here; 0: some of it is in use. `others`: what is not free beside
   it. */
static uint32_t unused_part(const struct sg_region *region, uint32_t others, uint32_t *ret_begin, uint32_t *ret_end)
{
    const struct sg_node *node = at(region, others);
    uint32_t page = page_of(region, node->begin), from = page * region->page_units, to = from + region->page_units;
    bool head = node->begin == from;
    uint32_t id = head ? node->next : node->prev;
    *ret_begin = head ? end_of(node) : from;
    *ret_end = head ? to : node->begin;
    bool unused = has_state(region, id, SG_NODE_FREE) && at(region, id)->begin <= *ret_begin &&
                  end_of(at(region, id)) >= *ret_end;
    return unused && !region->pin[page] ? id : 0;
}

/* What was lent, and is the free range `id` here, is free at home, for whom it was here. The whole page is an old
   address now. */
static void go_home(struct sg_device *device, struct sg_region *region, uint32_t others, uint32_t id, uint32_t begin,
    uint32_t end)
{
    uint32_t page = page_of(region, begin), lent = at(region, others)->lent;
    struct sg_region *home = device->region[at(region, lent)->region];
    at(region, lent)->owner = at(region, id)->owner;
    at(region, lent)->time = at(region, id)->time;
    uint32_t part = sg_region_cut_part(region, id, begin, end);
    at(region, others)->begin = page * region->page_units;
    at(region, others)->size = region->page_units;
    unlink_node(region, part);
    if (region->ordered)
        sg_region_note_after(home, at(home, lent)->begin, at(home, lent)->size, region->after[page]);
    become_free(home, lent);
    sg_alias_queue(device, others);
}

uint32_t sg_sew_return(struct sg_device *device)
{
    uint32_t returned = 0;
    for (uint32_t *link = &device->sewn; *link;) {
        uint32_t others = *link, begin, end;
        struct sg_region *region = device->region[device->nodes.node[others].region];
        uint32_t id = nodes_left(region->nodes, NODES_SPARE_OF_CUT) ? unused_part(region, others, &begin, &end) : 0;
        if (id) {
            *link = device->nodes.node[others].later;
            go_home(device, region, others, id, begin, end);
            returned++;
        } else {
            link = &device->nodes.node[others].later;
        }
    }
    return returned;
}
