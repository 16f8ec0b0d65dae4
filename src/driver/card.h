/* A card without a GPU: a driver table that only keeps the books. Replays and the tuner run the core on it.

   The table's functions have no user pointer, so the card they mean is the calling thread's (sg_card_use). Contexts do
   not exist, waits return at once. Recordings of events are numbered; the first `recordings_complete` of them are
   complete. Not for the preload library. */
#ifndef SG_CARD_H
#define SG_CARD_H

#include <stdint.h>

#include "driver.h"

struct sg_card {
    uint64_t total_bytes, used_bytes, peak_bytes;
    uint64_t granularity;
    uint64_t next_address;
    uint64_t recordings, recordings_complete;
    uint64_t *recording; /* of each event: the number of its latest recording */
    uint64_t events, events_room;
    struct sg_card_plain {
        CUdeviceptr address;
        uint64_t bytes;
    } *plain; /* by cuMemAlloc */
    uint64_t plain_count, plain_room;
};

void sg_card_init(struct sg_card *card, uint64_t total_bytes, uint64_t granularity);

void sg_card_fini(struct sg_card *card);

/* The calling thread's card from here on. */
void sg_card_use(struct sg_card *card);

extern const struct sg_driver sg_card_driver;

#endif
