/* Places: where the contents of each paused block stand, on the host or in files.

   Nouns. A *holder* is a mapping of the host (contents.c) or a file (contents_file.c). A *place* is the part of a holder that
   one block has.

   Why a table in the order of addresses: a model has tens of thousands of blocks. Each is looked for when it is
   freed, put back, and saved again. How: the core lists blocks by region, the table is sorted once, and a search halves it.
   A place without bytes is gone: its block was freed.

   For example, blocks of 3 and 5 MiB at 0x7f0000000000 and 0x7e0000000000. The second is first in the table. An address 1 MiB
   into it is found there; once it is freed, it is not. */
#ifndef SG_CONTENTS_PLACES_H
#define SG_CONTENTS_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"

struct sg_place {
    CUdeviceptr address;
    uint64_t bytes;  /* that were asked for; 0: it is gone */
    uint64_t offset; /* in the holder */
    uint32_t holder; /* an index of the caller's */
    bool chosen;     /* sg_places_choose() */
};

struct sg_places {
    struct sg_place *place;
    size_t count;
};

/* Makes a table of these pieces, sorted, without holders. False: the host has no memory. */
bool sg_places_make(struct sg_places *ret, const struct sg_memory_piece *pieces, size_t count);

/* Gives the table's memory back. */
void sg_places_drop(struct sg_places *places);

/* The place of the block that has an address anywhere in it; NULL: there is none. */
struct sg_place *sg_places_find(const struct sg_places *places, CUdeviceptr address);

/* The place of the block that begins at an address and has that many bytes; NULL: there is none. */
struct sg_place *sg_places_find_block(const struct sg_places *places, CUdeviceptr address, uint64_t bytes);

/* Chooses the places of these pieces, and no others. False: a piece has none. */
bool sg_places_choose(struct sg_places *places, const struct sg_memory_piece *pieces, size_t count);

#endif
