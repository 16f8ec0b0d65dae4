/* A core over the strict driver in which contexts are current, captures are live, and something happens while the
   driver is being called: for tests of what is asked of it, and of what the answers tell. */
#ifndef TEST_SCENE_H
#define TEST_SCENE_H

#include "rooms.h"

struct scene {
    struct sg_core *core;
    struct sg_device *device; /* the first */
    CUcontext current;
    bool capturing;           /* a capture is live: nothing can be recorded */
    bool current_unknown;     /* which context is current the driver does not say */
    bool push_fails;          /* nor does it make another one current */
    CUcontext unrecordable;   /* no event over it can be had */
    bool prompt;              /* what is recorded is complete at once */
    void (*meanwhile)(void);  /* happens once, during the next call that records or waits; NULL: nothing */
    uint64_t waited;          /* bits of the contexts that were waited for */
    unsigned recorded, queried, made, event_waits; /* calls */
    unsigned over_contexts;   /* of what was recorded */
    CUevent latest;           /* the event made last, and the context that was current then */
    CUcontext made_in;
    CUresult (*aside)(void *user); /* begun for a thread of its own, for the test to call */
    void *user;
};
extern struct scene scene;

/* Starts with two devices, empty; `records_contexts`: the driver can record an event over a context. For the setup of a
   test, as scene_stop() for its end. */
int scene_start(void **state);
int scene_start_on_older_driver(void **state);
int scene_stop(void **state);

/* A context's handle by a number of its own from 1 on; scene_add_context() makes one of a device known. */
CUcontext scene_context(unsigned number);
CUcontext scene_add_context(unsigned number, int device);

/* A stream of the first device. */
sg_slot scene_add_stream(uintptr_t key, unsigned flags, CUcontext context);

/* A block of two megabytes in the current context, of the stream of `slot` unless that is 0; and its free. */
CUdeviceptr scene_allocate(sg_slot slot);
void scene_free(CUdeviceptr address, enum sg_free_sync sync);

uint64_t scene_pending_bytes(void);

/* What is freed after the stream's work so far. */
struct sg_after scene_freed(sg_slot slot);

bool scene_is_complete(struct sg_after after);

enum { SCENE_BLOCK = 2 << 20 };

#endif
