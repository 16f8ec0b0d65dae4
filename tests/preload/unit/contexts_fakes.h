/* Contexts of a driver made up for tests of contexts; the core and the rest of the library are fakes (fakes.h). */
#ifndef CONTEXTS_FAKES_H
#define CONTEXTS_FAKES_H

#include <stdbool.h>

#include "fakes.h"
#include "hooks/context_end.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/contexts.h"
#include "track/events.h"
#include "track/graph_blocks.h"
#include "track/streams.h"

#define PRIMARY ((CUcontext)64)
#define MADE ((CUcontext)128)
#define FAR ((CUcontext)192) /* of the second device */
#define LAST ((CUcontext)384) /* of the last one that there can be */
#define OF_GREEN ((CUcontext)256)
#define GREEN ((CUgreenCtx)320)

struct fake {
    CUcontext current, next;  /* the context that is made next */
    CUdevice device;          /* of the current context */
    int active;               /* the primary context still is, after a release */
    int users;                /* of a context that is detached: it has ended at 0 */
    int trims_before;         /* of the core, before the driver's latest call that may end a context */
    int ending_calls;         /* under way, that may end a context */
    bool during;              /* the core knew while the driver was called */
    CUresult get_device, push, state, created, retained, from_green, destroyed; /* what the driver answers */
    int out, room;            /* how often it is out of memory; how often there is room then */
    bool no_core, no_driver, ids;
    unsigned long long id;      /* of the next context that it is asked about */
    CUcontext ending_elsewhere; /* another thread may end this one, until somebody has rested */
    bool ending_on;             /* or for long */
    void (*meanwhile)(void);    /* called while the core notes a context */
};
extern struct fake fake;

/* A cmocka setup: the program has a primary context. And its end, which leaves none. */
int start(void **state);
int end(void **state);

/* The program makes a context. */
void make(CUcontext context, int device);

#endif
