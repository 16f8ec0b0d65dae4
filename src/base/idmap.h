/* A dictionary from 64-bit ids to 64-bit values, for replays: which live block a record means.

   Open addressing with linear probing and deletion by shifting back; half full at most. Where the project uses uthash
   elsewhere, a replay looks an id up for every record, and uthash's allocation an entry alone costs more than the
   core's own work on it, and its lookups take several times as long (tests/bench/structures.c). */
#ifndef SG_IDMAP_H
#define SG_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sg_idmap {
    struct sg_idmap_entry {
        uint64_t id, value; /* value 0: empty */
    } *entry;
    size_t mask, count;
};

/* All functions: single-threaded. False: no host memory. */
bool sg_idmap_init(struct sg_idmap *map);
void sg_idmap_fini(struct sg_idmap *map);

/* `value` must not be 0. An id that is there already gets the new value. */
bool sg_idmap_put(struct sg_idmap *map, uint64_t id, uint64_t value);

/* What it takes; while it grows, twice that comes on top. */
static inline size_t sg_idmap_bytes(const struct sg_idmap *map)
{
    return map->entry ? (map->mask + 1) * sizeof(*map->entry) : 0;
}

/* 0 when the id isn't there. sg_idmap_take() also removes it. */
uint64_t sg_idmap_get(const struct sg_idmap *map, uint64_t id);
uint64_t sg_idmap_take(struct sg_idmap *map, uint64_t id);

#endif
