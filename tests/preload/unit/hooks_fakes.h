/* A block, memory of the driver's, and a context, for tests of the hooks that allocate, free, pin and answer questions.
   All else are fakes (fakes.h). */
#ifndef HOOKS_FAKES_H
#define HOOKS_FAKES_H

#include <stdbool.h>
#include <stddef.h>

#include "fakes.h"
#include "inspect/core_state.h"
#include "process/process.h"
#include "serve/alloc.h"
#include "serve/deferred_frees.h"
#include "serve/free.h"
#include "serve/free_mode.h"
#include "serve/used_streams.h"
#include "services/trim.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/free_policy.h"
#include "track/ipc.h"
#include "track/streams.h"

/* A block of ours, and memory that is the driver's; the limit, where there is one. */
enum { OURS = 1 << 20, THEIRS = 2 << 20, BYTES = 10000, OFFSET = 512, LIMIT = 64 << 20 };
#define CONTEXT ((CUcontext)64)
#define STREAM ((CUstream)128)

struct fake {
    bool over, inside, early, no_driver, torch, plugged, limited; /* plugged: the caller is not PyTorch */
    bool passes;                                                  /* the caller needs the driver's own memory */
    CUresult block, current, stream_id; /* what the core and the driver say of the block, the context, a stream */
    CUresult answer, once;              /* the driver's to hooks: `once` the first time, then `answer` */
    int device;
    size_t pitch;
    int awaits;               /* the core has to be polled so often until there is nothing more */
    uint64_t freed, reserved; /* blocks, so far; of the device */
    bool plain;               /* the block is an allocation of the driver's */

    const char *called; /* the driver's function */
    CUdeviceptr asked;  /* and the address that it was asked about */
    int calls, passed;  /* of the driver; bytes that it served, and its blocks that were freed */
    size_t allocated;
};
extern struct fake fake;

/* Calls that run deferred frees. */
int settled(void);

/* Answers of the driver about the block's memory. */
struct allocation {
    int legacy;       /* whether the driver would give the block's memory away */
    CUdeviceptr base; /* of its allocation */
    CUresult range, attribute;
};
extern struct allocation allocation;

/* Its calls for the flags of a context. */
struct flags {
    CUresult push, get, set;
    unsigned flags;
    int pushes;
    bool lacks_get, lacks_set;
};
extern struct flags flags;

/* A cmocka setup: nothing of the test before is left. */
int start_afresh(void **state);

#endif
