/* A core that gives memory and takes it back as a test says, for tests of allocations and frees. All else are fakes
   (fakes.h). */
#ifndef REQUESTS_FAKES_H
#define REQUESTS_FAKES_H

#include <stdbool.h>
#include <stddef.h>

#include "fakes.h"
#include "inspect/core_state.h"
#include "process/capture_mode.h"
#include "process/process.h"
#include "report/oom_report.h"
#include "serve/alloc.h"
#include "serve/callers.h"
#include "serve/deferred_frees.h"
#include "services/hazard_annotations.h"
#include "services/trim.h"
#include "torch/torch_current.h"
#include "track/captures.h"
#include "track/context_wait.h"
#include "track/contexts.h"
#include "track/graph_blocks.h"
#include "track/streams.h"
#include "track/torch_mode.h"

#define CONTEXT ((CUcontext)64)
#define OTHER_CONTEXT ((CUcontext)128)
#define STREAM ((CUstream)192)
enum { BLOCK = 4096, SLOT = 5, NO_RECORD = -1 };

/* Answers of the library and the driver, and calls that they got. */
struct fake {
    struct sg_conf conf;
    bool placed, on_device; /* streams that are asked for are found */
    int place_device, stream_device;
    bool live;               /* a capture; */
    bool drops;              /* it ends while it is awaited */
    bool no_core, no_stream; /* a thread that is inside; no stream of PyTorch's */
    CUresult current, look;  /* answers to questions about contexts, ours and the driver's */
    CUstream own;            /* what this thread captures; NULL: nothing */
    bool again;              /* a block of a graph's is used again */

    CUresult malloc[32]; /* what the core answers, one after another, and then CUDA_SUCCESS */
    int mallocs;
    int ends;                   /* captures end while the core is asked for memory so often, from the first time on */
    CUresult free, next_free;   /* its next answer to a free, and those after that */
    CUresult block, free_block; /* of the block, and once the core was asked to free it */
    CUresult wait;
    bool all;            /* that wait was for all work */
    struct sg_tag tag;   /* of the latest allocation or free */
    CUcontext waited_in; /* the core took this one for the current context */

    CUresult probe; /* the driver's answer to an allocation */
    size_t idle,
        driver_has;        /* bytes: what the core holds for nobody, and what of the driver's can be had; both 0: any */
    int probes, events;    /* allocations of the driver's; its events that are not destroyed */
    bool no_room, pending; /* nothing is given back to the driver; memory is pending */
    bool no_stats;         /* the core has no statistics of the device */
    size_t text;           /* how long a report is */
};
extern struct fake fake;

/* The slot that was recorded last, or NO_RECORD. */
int recorded(void);

#define CORE ((struct sg_core *)&fake)
extern const struct sg_request plain, torch, named, in_order;

/* A cmocka setup: nothing of the test before is left. */
int start_afresh(void **state);

#endif
