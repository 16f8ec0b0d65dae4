/* Memory of a device that the allocator has not served, by category.

   A *category* is the kind of call that took the memory: cudaMallocAsync, cuMemCreate, arrays, and so on (outside.def has
   them all). Everything that no call of the program explains is OTHER: contexts, code and other processes.

   Why: a smallest card or a verdict that counts only the allocator's own memory would be too small. Not all of this
   memory counts alike, though. Managed memory can move to the host, and a pool gives idle memory back at a wait.

   Example, bytes in GiB: OTHER 0.5, POOLS 2, POOLS_IDLE 1, MANAGED 3, POOLS_LEAVING 0.25.
       sum     6.75    all that is held at the moment
       stays   3.50    the sum without MANAGED and POOLS_LEAVING
   A program beside which 3.5 GiB stay can have the rest of the card. */
#ifndef SG_OUTSIDE_H
#define SG_OUTSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

/* Bytes by category, of one device at one moment. */
struct sg_outside {
    uint64_t bytes[SEGALLOC_OUTSIDE_COUNT];
};

/* The name of a category in JSON ("pools"), and the words of a report after the bytes ("by cudaMallocAsync"). A call that was
   refused has words after "asked for" ("as managed memory"). Constant texts. */
const char *sg_outside_key(enum segalloc_outside what);
const char *sg_outside_call(enum segalloc_outside what);
const char *sg_outside_refused(enum segalloc_outside what);

/* The category of a record's id; OTHER for one of a later version. */
enum segalloc_outside sg_outside_kind(uint64_t id);

/* The sum of all categories, bytes. */
uint64_t sg_outside_sum(const struct sg_outside *outside);

/* Bytes that cannot leave the device while the program needs them. Pages of managed memory can, because the driver moves
   them to the host where memory is short. POOLS_LEAVING can, because a wait of the host, which the library makes then,
   gives it back. Source: CUDA C++ Programming Guide, "Unified Memory Programming" (oversubscription), "Stream Ordered
   Memory Allocator" (physical page caching). */
uint64_t sg_outside_stays(const struct sg_outside *outside);

/* True if the bytes of `now` may depend on how far the GPU has come: the next run of the program may then show others. Pools
   and graphs get memory back in the order of a stream, and work brings managed memory to the device. It is not looked whether
   bytes have fallen: a free and a later call that takes as many may lie between two readings. */
bool sg_outside_lags(const struct sg_outside *now);

#endif
