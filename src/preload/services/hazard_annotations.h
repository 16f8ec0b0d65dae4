/* Blocks declared to the simulated GPU's hazard checker, when they are handed out and when they are freed.

   Why. The checker then notices unordered work of two owners on the same bytes, in any program. Without a checker only
   a clock is found.

   For example, 4 KiB at A are given to stream 1, freed in stream order and given to stream 2. Work of stream 2 on A
   that is not ordered after stream 1's is a hazard with both owners' names. */
#ifndef SG_HAZARD_ANNOTATIONS_H
#define SG_HAZARD_ANNOTATIONS_H

#include <stdbool.h>

#include "core/core.h"

/* Looks for a checker that is on; once, before the first block. */
void sg_annotate_start(void);

/* The clock for driver calls. With the simulator it is virtual time, the cost of the calls on a GPU. */
uint64_t (*sg_annotate_clock(void))(void);

/* Bytes that work of a device has touched over a link so far. The members are those of struct segalloc_sim_link in sim/extra.h. Nothing of
   the simulator is included here, for the library has to be the same where there is a real driver. `host_bytes`: what pages
   in the host's memory take, which nobody asks for here. */
struct sg_annotate_link {
    uint64_t touched_bytes, host_bytes, peer_bytes, untold;
};
/* All 0 where nobody counts. */
struct sg_annotate_link sg_annotate_link(int device);

/* True if there is one. No lock. */
extern bool sg_annotate_on __attribute__((visibility("hidden")));

/* A block of ours was handed out; is about to be freed by the program. Addresses without a live block are left alone.
   */
void sg_annotate_given(CUdeviceptr address, size_t bytes);
void sg_annotate_freed(struct sg_core *core, CUdeviceptr address);

/* From here on, or with false no more, this thread's work is the library's own, on freed memory. */
void sg_annotate_upkeep(bool on);

#endif
