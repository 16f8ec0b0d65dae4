/* Memory that others than the played allocator hold of a device, on a card of another size than the recorded one.

   Memory that the program holds by other calls is the same on any card. Memory that its pools keep idle is not. Where an
   allocation from a pool finds no memory, the driver takes idle memory back from every pool. Source: the stream-ordered
   allocator of the CUDA C++ Programming Guide, "Physical Page Caching Behavior".

   An example. On the recorded card a pool keeps 4 GiB idle, and 4 GiB come from another pool: 8 GiB are held. On a card of
   5 GiB the idle ones go back first, so 4 GiB are held. */
#ifndef SG_OUTSIDE_LEVELS_H
#define SG_OUTSIDE_LEVELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/outside.h"

struct sg_outside_levels {
    struct sg_outside read, now; /* as recorded: what is being read, and the last that was read whole */
    uint64_t idle;               /* kept by pools on the played card */
    bool known;                  /* there was a record */
};

/* The change that a run of records has made. */
struct sg_outside_change {
    enum segalloc_outside what; /* the category that rose most; OTHER where none did */
    uint64_t bytes;             /* by which it did */
    bool from_pools;            /* memory of pools was allocated: idle memory of theirs can serve it */
};

/* Takes a SEGALLOC_RECORD_OUTSIDE. True: a run of them is whole, and *ret is what has changed. */
bool sg_outside_levels_read(struct sg_outside_levels *levels, const struct segalloc_trace_record *record,
    struct sg_outside_change *ret);

/* Bytes that stay on the device, idle ones of pools included. sg_outside_levels_trim() gives those back. */
uint64_t sg_outside_levels_bytes(const struct sg_outside_levels *levels);
static inline void sg_outside_levels_trim(struct sg_outside_levels *levels)
{
    levels->idle = 0;
}

/* Bytes that stay on any card. */
uint64_t sg_outside_levels_least(const struct sg_outside_levels *levels);

#endif
