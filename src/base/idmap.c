#include "idmap.h"

#include <stdlib.h>

#include "meta.h"
#include "wrap.h"

enum { FIRST_ENTRIES = 1 << 12 };

/* The home of an id, by Fibonacci hashing. Ids are addresses or slot numbers, whose low bits are alike. So the uppermost
   bits of the product are taken, which all bits of an id decide. With 4096 entries, mask 4095 has 52 leading zeros, and
   the shift by 52 leaves 12 bits. */
static size_t idmap_home(const struct sg_idmap *map, uint64_t id)
{
    return (size_t)(sg_hash(id) >> __builtin_clzll(map->mask));
}

bool sg_idmap_init(struct sg_idmap *map)
{
    map->entry = sg_meta_noted(calloc(FIRST_ENTRIES, sizeof *map->entry));
    map->mask = FIRST_ENTRIES - 1;
    map->count = 0;
    return map->entry != NULL;
}

void sg_idmap_fini(struct sg_idmap *map)
{
    free(map->entry);
    map->entry = NULL;
}

/* The place where an id stands or, if it is not there, the empty place where it would go. There is one, because the map
   is half full at most. */
static size_t idmap_find(const struct sg_idmap *map, uint64_t id)
{
    size_t at = idmap_home(map, id);
    while (map->entry[at].value && map->entry[at].id != id)
        at = (at + 1) & map->mask;
    return at;
}

/* Doubles the array and puts every entry anew, since homes depend on the size. False: no host memory, nothing changed. */
static bool idmap_enlarge(struct sg_idmap *map)
{
    struct sg_idmap larger = {.mask = 2 * map->mask + 1, .count = map->count};
    larger.entry = sg_meta_noted(calloc(larger.mask + 1, sizeof *larger.entry));
    if (!larger.entry)
        return false;
    for (size_t i = 0; i <= map->mask; i++)
        if (map->entry[i].value)
            larger.entry[idmap_find(&larger, map->entry[i].id)] = map->entry[i];
    free(map->entry);
    *map = larger;
    return true;
}

bool sg_idmap_put(struct sg_idmap *map, uint64_t id, uint64_t value)
{
    if (2 * (map->count + 1) > map->mask && !idmap_enlarge(map))
        return false;
    struct sg_idmap_entry *entry = &map->entry[idmap_find(map, id)];
    map->count += entry->value == 0;
    *entry = (struct sg_idmap_entry){id, value};
    return true;
}

uint64_t sg_idmap_get(const struct sg_idmap *map, uint64_t id)
{
    return map->entry[idmap_find(map, id)].value;
}

uint64_t sg_idmap_take(struct sg_idmap *map, uint64_t id)
{
    size_t hole = idmap_find(map, id);
    uint64_t value = map->entry[hole].value;
    if (!value)
        return 0;
    map->count--;
    for (size_t at = (hole + 1) & map->mask; map->entry[at].value; at = (at + 1) & map->mask) {
        /* An entry may fill the hole unless its home lies between the hole and itself. */
        uint64_t from_home = sg_steps_round(idmap_home(map, map->entry[at].id), at, map->mask + 1),
                 from_hole = sg_steps_round(hole, at, map->mask + 1);
        if (from_home >= from_hole) {
            map->entry[hole] = map->entry[at];
            hole = at;
        }
    }
    map->entry[hole].value = 0;
    return value;
}
