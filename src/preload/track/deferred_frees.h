/* A free as the program asked for it, and frees that are put off until no capture and no graph needs the block. */
#ifndef SG_DEFERRED_FREES_H
#define SG_DEFERRED_FREES_H

#include <stdatomic.h>

#include "core/core.h"

/* Where a call comes from, for the core. */
struct sg_request {
    CUstream stream;
    bool has_stream;
    bool torch;          /* PyTorch in direct or pluggable mode: it orders its own work */
    bool pluggable;      /* PyTorch, which may or may not tell of recorded streams */
    bool named;          /* `stream` is the caller's word, and other streams that use the block are recorded with us */
    bool stream_order;   /* the interface itself says that the free is a step of `stream`, after all use of the block */
    bool is_complete;    /* of a free: all that used the block is known to be done */
    bool was_deferred;   /* of a free: put off by us before, so that nobody is to wait in it */
    bool driver_allowed; /* of a free: the driver allowed it during a capture, in the thread that made it, which need
                          not be the one that carries it out; `stream` may be gone by then */
};

/* Settles, and has events recorded for what was freed so far, on all devices; not while a capture is active. Not between sg_enter()
   and sg_leave(). */
void sg_memory_fence(void);

/* Frees what was put off for a capture or a graph that is over by now: before the core is asked for memory. */
void sg_memory_run_deferred(struct sg_core *core);

/* The same, for who needs all that there is: also what belongs to a graph that the driver has ended and not told of yet. It
   may wait for that, a moment. */
void sg_memory_settle(struct sg_core *core);

/* Where freed memory is kept for graphs, waits for the work of the current context, as long as an allocation may, and
   settles again. A launch may still use memory of a graph that the program has destroyed; natively that memory was free
   before. False: nothing was waited for. */
bool sg_memory_settle_launches(struct sg_core *core);

/* True if there is any of that, which is counted by captures.c and graph_blocks.c. No lock, anywhere. */
extern atomic_int sg_captures_deferred __attribute__((visibility("hidden"))),
    sg_graphs_gone __attribute__((visibility("hidden")));
static inline bool sg_memory_has_deferred(void)
{
    return atomic_load_explicit(&sg_captures_deferred, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&sg_graphs_gone, memory_order_relaxed) > 0;
}

#endif
