/* Feeds the core of a replay with the order of streams that the recorded allocator observed. The core queries nothing
   itself, so its decisions are the recorded ones. */
#ifndef SG_ORDER_FEED_H
#define SG_ORDER_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "base/idmap.h"

struct sg_order_feed {
    struct sg_core *core;
    sg_slot *slot; /* of each stream index */
    uint32_t streams;
    struct sg_idmap absent; /* ids of frees that took effect later there, and that have no block here */
    uint64_t key;           /* of the stream that came last */
};

/* False: no host memory. The core is borrowed. */
bool sg_order_feed_init(struct sg_order_feed *feed, struct sg_core *core);
void sg_order_feed_fini(struct sg_order_feed *feed);

/* The slot of a stream index; 0: it is not followed. */
sg_slot sg_order_feed_slot(const struct sg_order_feed *feed, uint32_t stream);

/* A free that was to take effect later, of an allocation that has failed here. False: no host memory. */
bool sg_order_feed_skip(struct sg_order_feed *feed, uint64_t id);

/* DONE: a free takes effect. */
void sg_order_feed_done(struct sg_order_feed *feed, int device, uint64_t id);

/* SLOT, SLOT_GONE, TICK, ORDER, COMPLETE. False: no host memory. */
bool sg_order_feed_order(struct sg_order_feed *feed, int device, const struct segalloc_trace_record *record);

#endif
