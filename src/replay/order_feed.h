/* What a trace of ours tells of the order of streams as the recorded allocator learnt it: given to the replay's core,
   which asks nobody itself, so that it decides the same. */
#ifndef SG_TOLD_H
#define SG_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "core.h"
#include "idmap.h"

struct sg_told {
    struct sg_core *core;
    sg_slot *slot; /* of each stream index */
    uint32_t streams;
    struct sg_idmap absent; /* ids of frees that took effect later there, and that have no block here */
    uint64_t key;           /* of the stream that came last */
};

/* False: no host memory. The core is borrowed. */
bool sg_told_init(struct sg_told *told, struct sg_core *core);
void sg_told_fini(struct sg_told *told);

/* The slot of a stream index; 0: it is not followed. */
sg_slot sg_told_slot(const struct sg_told *told, uint32_t stream);

/* A free that was to take effect later, of an allocation that has failed here. False: no host memory. */
bool sg_told_skip(struct sg_told *told, uint64_t id);

/* DONE: a free takes effect. */
void sg_told_done(struct sg_told *told, int device, uint64_t id);

/* SLOT, SLOT_GONE, TICK, ORDER, COMPLETE. False: no host memory. */
bool sg_told_order(struct sg_told *told, int device, const struct segalloc_trace_record *record);

#endif
