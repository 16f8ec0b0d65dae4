/* Feeds the core of a replay with the order of streams that the recorded allocator observed.

   A *slot* is the number under which a device follows a stream. *Time* is the device's sequence number. The recorded
   allocator wrote down what it found out: which stream is ordered after which, and what is complete. The core of a replay
   queries nothing itself, so its decisions are the recorded ones.

   Example, records of device 0:
     SLOT      stream 2, id 5              stream 2 is followed as slot 5
     SLOT      stream 3, id 6              stream 3 as slot 6
     TICK      id 0x20, size 17            slot 5 was given work; the time is 17
     ORDER     stream 3, id 5, size 17     stream 3 is ordered after slot 5 up to 17: it may use what slot 5 freed by then
     COMPLETE  id 5, size 17               slot 5 is complete up to 17: every stream may */
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

/* A free takes effect (DONE), unless its allocation has failed here. */
void sg_order_feed_done(struct sg_order_feed *feed, int device, uint64_t id);

/* Takes a record SLOT, SLOT_GONE, TICK, ORDER, COMPLETE or MARK; other kinds do nothing. False: no host memory. */
bool sg_order_feed_order(struct sg_order_feed *feed, int device, const struct segalloc_trace_record *record);

#endif
