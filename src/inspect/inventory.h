/* Lists of what a device has: pieces of addresses, marks on pages, and levels without a list. */
#ifndef SG_INVENTORY_H
#define SG_INVENTORY_H

#include "base/stats.h"
#include "core/core.h"

/* A piece of the addresses that have memory. Pieces come region by region in the order of their addresses. Addresses
   between two that don't touch have none. */
enum sg_piece_state { SG_PIECE_NONE, SG_PIECE_ALLOCATED, SG_PIECE_PENDING, SG_PIECE_FREE };
struct sg_piece {
    CUdeviceptr address;
    uint64_t bytes, requested; /* requested: 0 of free ones */
    CUstream stream;           /* that a block was allocated for, NULL if not known */
    enum sg_piece_state state;
    bool small; /* in the region of small blocks */
};

/* Writes up to `room` pieces of `device`, and returns how many there are: 0 with fixed segments. The caller asks
   again with more room if that is more. */
size_t sg_core_pieces(struct sg_core *core, int device, struct sg_piece *ret, size_t room);

/* A piece with the pages that it lies in: they follow each other from the region's first. */
struct sg_placed {
    struct sg_piece piece;
    CUdeviceptr region; /* where its first page begins */
    uint64_t page_bytes;
    uint32_t site; /* of a block: the place in the program that asked; 0: unknown */
};
size_t sg_core_placed(struct sg_core *core, int device, struct sg_placed *ret, size_t room);

/* Pages next to each other whose memory may not move. Pinned: somebody remembers it. Shared: it has an alias too
   (core/remap/page_alias.h). */
struct sg_page_mark {
    CUdeviceptr address;
    uint64_t bytes;
    bool pinned, shared;
};

/* Writes up to `room` runs of such pages, region by region in the order of their addresses, and returns how many
   there are. Aliases are not among them. */
size_t sg_core_page_marks(struct sg_core *core, int device, struct sg_page_mark *ret, size_t room);

/* Bytes that are held of `device` now. Cheap, for a caller that asks after each event of a replay. */
uint64_t sg_core_reserved(struct sg_core *core, int device);

/* A COUNTER of stats.def that the core keeps in no TOTAL; 0 for a device that was never used. Cheap too, and without
   a lock. */
uint64_t sg_core_counter(struct sg_core *core, int device, enum sg_stat stat);

/* Adds to a COUNTER of stats.def that is counted outside the core. Nothing for a device that was never used. No lock. */
void sg_core_count(struct sg_core *core, int device, enum sg_stat stat, uint64_t amount);

/* The levels of a device, bytes. Cheap too; zeros for a device that was never used. */
struct sg_levels {
    uint64_t requested, allocated, pending, reserved, pinned, aliased; /* as the statistics of these names */
};
void sg_core_levels(struct sg_core *core, int device, struct sg_levels *ret);

#endif
