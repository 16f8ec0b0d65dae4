/* A core, a driver and the rest of the library made up for tests of the hooks that allocate, free, pin and answer
   questions: they answer what they are told to, and keep what they were asked. */
#ifndef HOOKS_WORLD_H
#define HOOKS_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "process/hooks.h"

/* A block of ours, and memory that is the driver's; the limit, where there is one. */
enum { OURS = 1 << 20, THEIRS = 2 << 20, BYTES = 10000, OFFSET = 512, LIMIT = 64 << 20 };
#define CONTEXT ((CUcontext)64)
#define STREAM ((CUstream)128)

struct fake {
    bool over, inside, early, passing, no_driver, live, torch, plugged, limited; /* plugged: the caller is not PyTorch */
    bool any_pages, passes,
        refused_legacy; /* the caller needs the driver's own memory; what a refused handle was said to be of */
    CUresult block, current, stream_id; /* what the core and the driver say of the block, the context, a stream */
    CUresult answer, once; /* the driver's to hooks: `once` the first time, then `answer` */
    int device;
    size_t pitch, idle;
    int polled, awaits; /* how often the core was asked to learn of work, and has to be until there is nothing more */
    uint64_t freed;     /* blocks, so far */
    uint64_t limit, reserved; /* of the device, 0: none */
    bool plain;               /* the block is an allocation of the driver's */

    const char *called; /* the driver's function */
    CUdeviceptr asked;  /* and the address that it was asked about */
    uint64_t of_others; /* bytes that other processes would give back */
    int calls, refused, pinned, pinned_all, frees, passed, served, recorded, abroad, told, settled, kept, followed,
        said, torch_records, hooked;
    size_t allocated;
};
extern struct fake fake;

/* What the driver says of the block's memory. */
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
