/* A card without a GPU: a driver table that only keeps the books. Replays and the tuner run the core on it.

   The table's functions have no user pointer, so the card they mean is the calling thread's (sg_card_use), and where a
   call does not name a device, the device that sg_card_use_device() named last. Every device has the same memory.
   Contexts do not exist, waits return at once. Recordings of events are numbered on each device; the first
   `recordings_complete` of them are complete. Not for the preload library. */
#ifndef SG_CARD_H
#define SG_CARD_H

#include <stdint.h>

#include "driver.h"

enum { SG_CARD_DEVICES = 64 };

struct sg_card {
    uint64_t total_bytes, granularity; /* of each device */
    uint64_t next_address;
    struct sg_card_device {
        uint64_t used_bytes, peak_bytes;
        uint64_t outside_bytes; /* in use by others */
        uint64_t recordings, recordings_complete;
    } device[SG_CARD_DEVICES];
    struct sg_card_event {
        uint64_t recording; /* number of its latest recording */
        uint32_t device;
    } *event;
    uint64_t events, events_room;
    struct sg_card_plain {
        CUdeviceptr address;
        uint64_t bytes;
        uint32_t device;
    } *plain; /* by cuMemAlloc */
    uint64_t plain_count, plain_room;
};

void sg_card_init(struct sg_card *card, uint64_t total_bytes, uint64_t granularity);

void sg_card_fini(struct sg_card *card);

/* The calling thread's card from here on. */
void sg_card_use(struct sg_card *card);

/* The device that the calling thread's calls mean from here on, where they don't say; 0 at first. */
void sg_card_use_device(int ordinal);

extern const struct sg_driver sg_card_driver;

#endif
