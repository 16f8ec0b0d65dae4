/* A driver, contexts and a core made up for tests of what is believed of the order of streams: they answer what they
   are told to, and keep what the core was told. */
#ifndef ORDER_WORLD_H
#define ORDER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "track/events.h"
#include "track/streams.h"

struct fake {
    CUresult answer;     /* of the driver's next calls */
    void (*meanwhile)(void), (*when_asked)(void); /* what others do during the next call; and question about flags */
    bool capturing, live;
    int joining;         /* calls under way by which streams may come to be captured */
    bool destroyed_first; /* a stream was destroyed before the core heard of it */
    unsigned long long ids[64]; /* of stream handles 16, 32 … */
    unsigned long long next_id;
    sg_slot slots[1024]; /* by number of the stream */
    sg_slot next_slot;
    bool no_slots;
    uintptr_t current;   /* context; 0 means the first, and that there are no others */
    bool devices;        /* contexts are of several */
    bool green;          /* all contexts are, and stand for the first */
    unsigned flags;      /* of streams that are no default ones */
    CUresult flags_answer, id_answer, context_answer, current_answer;
    bool telling;        /* all who free tell of the streams that used a block */
    bool old;            /* the driver lacks the calls for streams' numbers, contexts and flags */
    bool strange;        /* contexts are of no device */
    struct sg_stream_id id; /* of the last one that the core was asked to follow */
    enum sg_free_sync free_sync; /* of the configuration */
    uint64_t time;       /* of clocks: each is later than the one before */
    /* what the core was told last, and how often */
    sg_slot waited_slot, opaque_slot, gone_slot, touched_slot, completed_slot;
    uint64_t waited_time, completed_time;
    int waits, completions, opaques, goings, touches, joins, tolds, told_some;
    unsigned told_devices; /* of all, bits */
    bool completed_all;    /* of all streams, followed or not */
    CUcontext clock_context;
};
extern struct fake fake;

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
