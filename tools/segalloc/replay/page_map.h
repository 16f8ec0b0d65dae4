/* How a device's pages were used at a moment of a replay: the map of them, and what keeps those that are used in part. */
#ifndef SG_PAGE_MAP_H
#define SG_PAGE_MAP_H

#include "core/core.h"
#include "live_groups.h"
#include "reader/site_book.h"

enum { SG_MAP_COLUMNS = 64, SG_MAP_CELLS = 16 * SG_MAP_COLUMNS, SG_PINS_LISTED = 16 };

/* Blocks of one kind in pages that are used in part. */
struct sg_pin {
    struct sg_live_key key;
    uint64_t blocks, bytes; /* that they use of such pages */
    uint64_t pages;         /* that nothing but they keep … */
    uint64_t back;          /* … and so their bytes, which would be idle without them */
};

struct sg_page_map {
    uint64_t event;         /* number of what the program did last, from 1; 0: there is no such moment */
    uint64_t reserved;      /* bytes */
    uint64_t pages;         /* 0: the device served fixed segments, and there is no map */
    uint64_t partly, partly_idle; /* pages that are used in part; bytes that are idle in them */
    uint32_t cells;
    uint64_t cell_bytes;    /* of the pages that a cell stands for, where they are of one size */
    char map[SG_MAP_CELLS]; /* '#' in use, '1' to '9' tenths, '.' idle, '~' in use by queued work only */
    struct sg_pin pin[SG_PINS_LISTED]; /* those that keep most first */
    uint32_t pins;
};

/* Looks at the device as it is now; `book` is of the trace that is played. False: no host memory. */
bool sg_page_map_take(struct sg_page_map *moment, struct sg_core *core, int device, uint64_t event,
    const struct sg_site_book *book);

#endif
