/* The state of a device when an allocation fails there, read under one lock.

   The *worst page* is the partly used page with the least in it: it stands in the way of being given to somebody else.

   For example, pages of 2 MiB have 1.5 MiB, 512 bytes and 0 in use. Two are partly used, and the worst keeps 2 MiB for 512
   bytes. */
#ifndef SG_OOM_FACTS_H
#define SG_OOM_FACTS_H

#include "base/live_groups.h"
#include "core/core.h"
#include "inspect/oom_cause.h"

struct sg_device;

struct sg_oom_page {
    uint64_t used, pages; /* bytes in that page; partly used pages in all */
    CUdeviceptr page;
    uint64_t block;       /* size of one block in it */
    uint64_t page_bytes;
};

enum { SG_OOM_ROWS = 5 };

struct sg_oom_facts {
    struct sg_shortage shortage;    /* with what the device has left now, to the byte */
    const struct sg_device *device; /* NULL: it has served nothing of ours */
    struct sg_oom_page worst;
    struct sg_live_row row[SG_OOM_ROWS]; /* the largest groups of live blocks */
    uint32_t rows;
};

/* The facts of the most recent failure. False: nothing was refused on a device that has served nothing. Takes `lock`, or
   `setup`. */
bool sg_oom_facts(struct sg_core *core, int ordinal, const struct sg_oom_around *around, struct sg_oom_facts *ret);

#endif
