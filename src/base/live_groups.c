#include "live_groups.h"

#include <assert.h>
#include <string.h>

#include "meta.h"
#include "wrap.h"

/* Places of the hash table: a power of two, and at least twice the groups, so that it is half full at most. */
static uint32_t live_slots_of(const struct sg_live *live)
{
    uint32_t slots = 2;
    while (slots < 2 * live->most)
        slots *= 2;
    return slots;
}

bool sg_live_init(struct sg_live *live, uint32_t most)
{
    *live = (struct sg_live){.most = most, .groups = 1};
    live->group = sg_meta_map(most * sizeof *live->group);
    live->slot = sg_meta_map(live_slots_of(live) * sizeof *live->slot);
    if (live->group && live->slot)
        return true;
    sg_live_fini(live);
    return false;
}

void sg_live_fini(struct sg_live *live)
{
    sg_meta_unmap(live->group, live->most * sizeof *live->group);
    sg_meta_unmap(live->slot, live_slots_of(live) * sizeof *live->slot);
    *live = (struct sg_live){0};
}

static uint64_t live_key_hash(const struct sg_live_key *key)
{
    uint64_t hash = sg_fnv(SG_FNV_BASIS, key->stream);
    hash = sg_fnv(hash, key->site);
    hash = sg_fnv(hash, key->phase);
    hash = sg_fnv(hash, (uint64_t)key->size_class << 1 | (key->torch != 0));
    return sg_hash(hash) >> 32;
}

/* The group of a key, made where there is none yet; 0 where there is no room. */
static uint32_t live_find_group(struct sg_live *live, const struct sg_live_key *key)
{
    uint32_t mask = live_slots_of(live) - 1, at = (uint32_t)live_key_hash(key) & mask;
    for (; live->slot[at]; at = (at + 1) & mask) {
        if (memcmp(&live->group[live->slot[at]].key, key, sizeof *key) == 0)
            return live->slot[at];
    }
    if (live->groups == live->most)
        return 0;
    live->slot[at] = live->groups;
    live->group[live->groups].key = *key;
    return live->groups++;
}

/* Puts a group on the list of those that differ from the kept state, once. */
static void live_note_change(struct sg_live *live, uint32_t number)
{
    struct sg_live_group *group = &live->group[number];
    if (group->changed)
        return;
    group->changed = true;
    group->next_changed = live->changed;
    live->changed = number + 1;
}

uint32_t sg_live_add(struct sg_live *live, const struct sg_live_key *key, uint64_t bytes)
{
    uint32_t number = live_find_group(live, key);
    /* The number of an allocation is its time: births sum them, and ages are differences. */
    struct sg_live_sum *now = &live->group[number].now;
    live->allocs++;
    now->blocks++;
    now->bytes += bytes;
    now->births += live->allocs;
    live_note_change(live, number);
    return number;
}

void sg_live_remove(struct sg_live *live, uint32_t group, uint64_t bytes, uint64_t birth)
{
    struct sg_live_sum *now = &live->group[group].now;
    assert(now->blocks > 0 && now->bytes >= bytes && now->births >= birth);
    now->blocks--;
    now->bytes -= bytes;
    now->births -= birth;
    live_note_change(live, group);
}

void sg_live_keep(struct sg_live *live)
{
    while (live->changed) {
        struct sg_live_group *group = &live->group[live->changed - 1];
        live->changed = group->next_changed;
        group->changed = false;
        group->kept = group->now;
    }
    live->kept_allocs = live->allocs;
}

/* The key with the fields that do not matter set to 0. */
static struct sg_live_key live_key_masked(const struct sg_live_key *key, const struct sg_live_key *mask)
{
    return (struct sg_live_key){
        .stream = key->stream & mask->stream, .site = key->site & mask->site, .phase = key->phase & mask->phase,
        .size_class = key->size_class & mask->size_class, .torch = key->torch & mask->torch,
    };
}

static bool live_row_is_before(const struct sg_live_row *a, const struct sg_live_row *b)
{
    return a->bytes != b->bytes ? a->bytes > b->bytes : a->blocks > b->blocks;
}

/* Puts a row where it belongs among `*count` sorted ones, of which the smallest falls out when there is no room. */
static void live_rows_insert(struct sg_live_row *row, uint32_t *count, uint32_t room, const struct sg_live_row *new)
{
    uint32_t at = *count < room ? *count : room;
    if (at == room && (!room || !live_row_is_before(new, &row[room - 1])))
        return;
    at -= at == room;
    for (; at > 0 && live_row_is_before(new, &row[at - 1]); at--)
        row[at] = row[at - 1];
    row[at] = *new;
    *count += *count < room;
}

uint32_t sg_live_rows(const struct sg_live *live, bool kept, const struct sg_live_key *mask, struct sg_live_row *ret,
    uint32_t room)
{
    /* Groups that the mask makes equal meet in a second structure, by their masked keys. Its births stay sums of numbers, so
       mean ages come out right. */
    static const struct sg_live_key all = {UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    struct sg_live merged;
    uint32_t count = 0, groups = 0;
    if (!live->group || !sg_live_init(&merged, live->most))
        return 0;
    merged.allocs = kept ? live->kept_allocs : live->allocs;
    for (uint32_t i = 0; i < live->groups; i++) {
        const struct sg_live_sum *sum = kept ? &live->group[i].kept : &live->group[i].now;
        const struct sg_live_key key = live_key_masked(&live->group[i].key, mask ? mask : &all);
        if (!sum->blocks)
            continue;
        struct sg_live_sum *into = &merged.group[i ? live_find_group(&merged, &key) : 0].now;
        into->blocks += sum->blocks;
        into->bytes += sum->bytes;
        into->births += sum->births;
    }
    for (uint32_t i = 0; i < merged.groups; i++) {
        const struct sg_live_sum *sum = &merged.group[i].now;
        if (!sum->blocks)
            continue;
        const struct sg_live_row row = {merged.group[i].key, sum->blocks, sum->bytes,
            merged.allocs - sum->births / sum->blocks};
        live_rows_insert(ret, &count, room, &row);
        groups++;
    }
    sg_live_fini(&merged);
    return groups;
}
