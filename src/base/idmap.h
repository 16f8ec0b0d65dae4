/* A dictionary from 64-bit ids to 64-bit values. A replay uses it to find the live block that a record means.

   Why not uthash, as elsewhere: a replay looks an id up for every record. An allocation for each entry costs more than
   the core's own work on that record, and lookups take several times as long (tests/bench/structures.c).

   The table is one array. An id has a *home*, the place that its hash names. It stands there or, where that is taken,
   in the next empty place after it (linear probing). The array is half full at most, so such walks are short. A removed
   entry leaves no mark: entries behind it move back into the gap, so walks stay short after any number of removals.

   Example of a removal. Ids A and B have home 5, C has home 6. They were put in that order, and stand in 5, 6 and 7.
     take A   place 5 is empty; B may stand there, since its home is 5: B moves to 5, and 6 is empty
              C may stand in 6, its home: C moves to 6, and 7 is empty
     get C    home 6 holds C: one step

   Memory: 4096 entries of 16 bytes, 64 KiB, at first. The 2048th id doubles that, the 4096th doubles it again. 100,000
   ids take 262,144 entries, 4 MiB. While it doubles, old and new array exist together. */
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

/* All functions are for one thread at a time, and the map is the caller's. False: there is no host memory, and the map
   is as it was. sg_idmap_fini() also takes a map of zeros. */
bool sg_idmap_init(struct sg_idmap *map);
void sg_idmap_fini(struct sg_idmap *map);

/* Sets the value of an id, which may be any number. `value` is not 0, for 0 marks an empty place. An id that is there
   already gets the new value. False: no host memory. */
bool sg_idmap_put(struct sg_idmap *map, uint64_t id, uint64_t value);

/* Bytes of host memory that the map takes. While it grows, twice as many come on top. */
static inline size_t sg_idmap_bytes(const struct sg_idmap *map)
{
    return map->entry ? (map->mask + 1) * sizeof(*map->entry) : 0;
}

/* The value of an id; 0 where the id is not there. sg_idmap_take() removes it as well. */
uint64_t sg_idmap_get(const struct sg_idmap *map, uint64_t id);
uint64_t sg_idmap_take(struct sg_idmap *map, uint64_t id);

#endif
