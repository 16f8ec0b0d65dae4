/* A driver, a core and the rest of the library made up for tests of contexts: they answer what they are told to, and
   keep what they heard. */
#ifndef CONTEXTS_WORLD_H
#define CONTEXTS_WORLD_H

#include <stdbool.h>

#include "track/contexts.h"
#include "process/hooks.h"

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
    int trims_before;         /* of those, before the driver's latest call that may end a context */
    CUresult destroyed;       /* what the driver answers */

    CUcontext seen, ending, ended; /* what the core was told of last */
    int ending_calls, gone;   /* calls under way that may end one; contexts that are gone */
    CUcontext streams, events, captures, graphs; /* who heard of its end */
    bool during;              /* the core knew while the driver was called */
    bool streams_first;       /* the streams heard of the end before the core */
    int peer_calls;
    bool peers;

    CUresult get_device, push, state, created, retained, from_green, enabled; /* what the driver answers */
    CUresult peered;          /* and the core */
    int out, room;            /* how often it is out of memory; how often there is room then */
    bool no_core, no_driver, inside, ids;
    unsigned long long id;    /* of the next context that it is asked about */
    int told, forgotten, disabled, popped;
    int rests;                  /* how often somebody has rested */
    CUcontext ending_elsewhere; /* another thread may end this one, until somebody has rested */
    bool ending_on;             /* or for long */
    int trims;                /* of a device without contexts */
    void (*meanwhile)(void);  /* done while the core is told of a context */
};
extern struct fake fake;

/* A cmocka setup: the program has a primary context. And its end, which leaves none. */
int start(void **state);
int end(void **state);

/* The program makes a context. */
void make(CUcontext context, int device);

#endif
