/* A driver, streams and a core made up for tests of the calls that give streams work. They count the calls, and answer
   as a test says. */
#ifndef WORK_WORLD_H
#define WORK_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "process/hooks.h"

/* What was seen since it was last set to zero, and what is to be answered. */
struct seen {
    bool capturing;
    bool devices; /* there are two; the thing is memory of the first's, the stream the second's */
    int calls; /* of the driver */
    int touches, opaques, taints, abroad;
    int shows, shows_all, shown_early; /* the last: before the driver was called */
    bool early; /* something else was noted of a stream by then */
    bool unfollowed; /* the stream */
    int shown_all;   /* at once, and not where it matters only */
    int waited_early; /* for what can't be followed, before order was */
    int recorded, served_abroad; /* uses by another device that are noted with the block, or with nobody's */
    const char *called; /* the driver's function */
    int out, asked_for_room, asked_others; /* how often the driver has run out; and how often room was asked for */
    bool room_of_others;
    bool room;       /* there is some */
    bool late;  /* the driver was called before an event was tainted */
    CUstream touched, shown, opaque;
    const char *untracked;
    bool aliased;    /* memory of the stream's has got a second address */
    int asked_for_aliases, steps, steps_late; /* events of ours on `stepped`; the last: after the driver's call */
    int host_steps;                           /* functions of the host, called there */
    CUstream stepped;
    bool touched_own, shown_own, opaque_own;
    CUevent tainted;
};
extern struct seen seen;

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
    CUresult create, record;     /* what the driver answers to events of ours */
    bool records;                /* with `guesses`: who frees records streams of other devices */
    bool guesses;                /* also where there are two devices: the caller of a free names no other streams */
};
extern struct given given;

/* By device. */
CUcontext context_of(int device);

/* A cmocka setup: nothing of the test before is left. */
int start_afresh(void **state);

#endif
