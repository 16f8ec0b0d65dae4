/* Answers of driver, streams and core for tests of the calls that give streams work. All else are fakes (fakes.h). */
#ifndef WORK_FAKES_H
#define WORK_FAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "fakes.h"
#include "serve/used_streams.h"
#include "track/events.h"
#include "track/streams.h"

/* What was seen since it was last set to zero, and what is to be answered. */
struct seen {
    bool capturing;
    bool devices;    /* there are two; the thing is memory of the first's, the stream the second's */
    bool unfollowed; /* the stream */
    bool room, room_of_others;
    int asked_for_room, asked_others;
    bool aliased; /* memory of the stream's has got a second address */
    int out;      /* how often the driver has run out */
    int calls;    /* of the driver, and the latest's name */
    const char *called;
    int shown_early;       /* before the driver was called */
    bool early, late;      /* something was noted of a stream before that; an event was tainted after that */
    int steps, steps_late; /* events of ours on `stepped`; the last: after the driver's call */
    int host_steps;        /* functions of the host, called there */
    CUstream stepped;
};
extern struct seen seen;
#define SEE_ANEW(...) (fakes_forget_all(), seen = (struct seen){__VA_ARGS__})

/* Notes of work on a stream, by either way, and of what the host may observe of it. */
int touches(void);
CUstream touched(bool *ret_own);
int shows(void);

/* What all arguments are: a stream, an event, and the address of what some calls look into. */
union thing {
    CUlaunchConfig config;
    CUgraphNodeParams params;
    CUDA_MEMCPY3D_PEER copy;
    CUDA_MEMCPY2D flat;
    CUDA_MEMCPY3D deep;
    CUstreamBatchMemOpParams operation;
    unsigned char bytes[4096];
};
extern union thing thing;

/* What the rest of the library and the driver say. */
struct given {
    bool no_core;     /* the thread is inside a call of ours */
    CUdeviceptr ours; /* memory of ours, where there is one device; 0: none */
    CUdeviceptr theirs; /* memory that is none of ours, where there are two; 0: none */
    unsigned type;    /* of that, as the driver knows it */
    int device;
    CUresult type_answer, device_answer;
    bool freed;       /* that was ours until it was freed */
    bool no_primary;  /* no primary context was met */
    bool same_device, no_device; /* the stream's is the first, or not known */
    bool records;                /* with `guesses`: who frees records streams of other devices */
    bool guesses;                /* also where there are two devices: the caller of a free names no other streams */
};
extern struct given given;

/* By device. */
CUcontext context_of(int device);

/* A cmocka setup: nothing of the test before is left. */
int start_afresh(void **state);

#endif
