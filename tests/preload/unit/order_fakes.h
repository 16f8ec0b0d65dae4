/* Streams, contexts and clocks made up for tests of the order of streams. All else are fakes (fakes.h). */
#ifndef ORDER_FAKES_H
#define ORDER_FAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "fakes.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/events.h"
#include "track/free_policy.h"
#include "track/streams.h"

struct fake {
    CUresult answer;     /* of the driver's next calls */
    void (*meanwhile)(void), (*when_asked)(void); /* what others do during the next call; and question about flags */
    bool live;
    unsigned long long ids[64]; /* of stream handles 16, 32 … */
    unsigned long long next_id;
    sg_slot slots[1024]; /* by number of the stream */
    sg_slot next_slot;
    bool no_slots;
    uintptr_t current;   /* context; 0 means the first, and that there are no others */
    unsigned flags;      /* of streams that are no default ones */
    CUresult flags_answer, id_answer, context_answer, current_answer;
    bool old;            /* the driver lacks the calls for streams' numbers, contexts and flags */
    bool strange;        /* contexts are of no device */
    struct sg_stream_id id; /* of the last one that the core was asked to follow */
    enum sg_free_sync free_sync; /* of the configuration */
    uint64_t time;       /* of clocks: each is later than the one before */
    int tolds, told_some;  /* how often the host has observed all work, and some */
    unsigned told_devices; /* of all, bits */
};
extern struct fake fake;

/* The latest clock that a stream was ordered after, or that was completed. */
struct latest {
    sg_slot slot;
    uint64_t time;
    bool all; /* of all streams, followed or not */
};
struct latest latest_waited(void);
struct latest latest_completed(void);

/* Streams are captured from now on, or not. */
void capture(bool begins);

/* Handles by number, 1 to 63. Streams from THIRD on are of a third context, which is the first one's device's, those
   from SECOND on of the second device's. */
enum { THIRD = 40, SECOND = 48 };
CUstream stream_of(uintptr_t number);
CUevent event_of(uintptr_t number);
/* The slot that the core gave the stream of that number. */
sg_slot slot_of(uintptr_t number);

/* A cmocka setup: nothing of the test before is left, all events have just been created. */
int start_afresh(void **state);

/* The same where order is followed only since after memory was given out. To be used from the first test on. */
int start_late(void **state);

#endif
