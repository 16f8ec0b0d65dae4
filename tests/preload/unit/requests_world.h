/* A core, a driver and the rest of the library made up for tests of allocations and frees: they answer what they are
   told to, and keep what they were asked. */
#ifndef REQUESTS_WORLD_H
#define REQUESTS_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "serve/callers.h"
#include "track/graph_blocks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/alloc.h"

#define CONTEXT ((CUcontext)64)
#define OTHER_CONTEXT ((CUcontext)128)
#define STREAM ((CUstream)192)
enum { BLOCK = 4096, SLOT = 5, NO_RECORD = -1 };

/* What the rest of the library and the driver say, and what they are asked. */
struct fake {
    struct sg_conf conf;
    bool left_pages; /* regions have, of a device that serves fixed segments */
    bool complete, blind;      /* what is known of streams */
    bool placed, on_device, capturing;
    int place_device, stream_device;
    CUcontext stream_context;
    bool live, others, all, green;   /* a capture; other devices; that a wait was for all; a green context */
    CUresult block, record, wait, probe, free;
    enum sg_graphs_answer keeps;

    int recorded, adopted, kept, settled, waits_for_all, probes, parked, spared; /* recorded: the slot */
    bool abroad, waited, fresh, disabled;
    struct sg_tag tag;
    int frees;

    bool no_core, no_torch, no_stream; /* a thread that is inside; no PyTorch, or no stream of its */
    bool no_event;                     /* over a context */
    CUresult current, next_free, create, step, waited_for; /* of contexts; of the core's next free; of an event */
    CUresult malloc[32]; /* what the core answers, one after another, and then CUDA_SUCCESS */
    int mallocs, passed_on, reports, relaxed, restored, given, freed, events, waits, polls, follows;
    bool relaxes, limited, helps, settling, again, pending;
    int asked_others, looks; /* for memory; for the current context */
    CUcontext waited_in;     /* what the core was told is current */
    CUresult look;
    bool drops;   /* a capture ends while it is awaited */
    int ends;     /* captures end while the core is asked for memory so often, from the first time on */
    bool no_room, no_stats; /* nothing is given back to the driver; the core has no statistics of the device */
    CUstream own; /* what this thread captures; NULL: nothing */
    int awaits;
    size_t text; /* how long a report is */
    int failed; /* allocations that are counted so */
    enum segalloc_settled how; /* the latest refusal, as the trace has it */
    size_t idle,
        driver_has; /* bytes: what the core holds for nobody, and what of the driver's can be had; both 0: any */
    CUresult stream_answer; /* to questions about a stream */
    int kept_freed;       /* so often freed blocks of graphs are found, before there are none any more */
    int tells;            /* so often the driver was waited for to tell of graphs that are gone */
    int context_waits;
    CUresult context_wait;
    CUresult free_block; /* of the block, once the core was asked to free it */
};
extern struct fake fake;

#define CORE ((struct sg_core *)&fake)
extern const struct sg_request plain, torch, named, in_order;

/* A cmocka setup: nothing of the test before is left. */
int start_afresh(void **state);

#endif
