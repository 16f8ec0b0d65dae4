/* Frees that are put off until no capture and no graph needs the block.

   Why. A free in a capture may ruin it, and memory of a graph may not go to others. Natively both frees succeed at
   once, so they do here, and the memory comes back later.

   How. captures.h keeps those that wait for captures, graph_blocks.h those that wait for graphs. Whoever needs memory
   frees what is due: run_deferred() before each allocation that takes the slow path, settle() where memory is short, or
   where a graph was destroyed.

   For example, 16 MiB are freed while a graph uses them; the program destroys the graph and allocates 16 MiB at once.
   The driver has not yet said that the graph is gone. In its destruction settle() waits for the driver's thread some
   microseconds, and the 16 MiB are freed. */
#ifndef SG_DEFERRED_FREES_H
#define SG_DEFERRED_FREES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/core.h"
#include "track/request.h"

/* Settles, and has events recorded for what was freed so far, on all devices; not while a capture is active. For the moment before
   the program waits, or before a `capture` begins. Not between sg_enter() and sg_leave(). */
void sg_memory_fence(bool capture);

/* Frees what was put off for a capture or a graph that is over by now: before the core is asked for memory. */
void sg_memory_run_deferred(struct sg_core *core);

/* Frees all that there is, also blocks of a graph that the driver has ended and not told of yet. It may wait for that, a
   moment. sg_memory_settle_refused() is for callers that have run out: it waits as long as an allocation may. */
void sg_memory_settle(struct sg_core *core);
void sg_memory_settle_refused(struct sg_core *core);

/* Where freed memory is kept for graphs, waits for the work of the current context, as long as an allocation may, and
   settles again. A launch may still use memory of a graph that the program has destroyed; natively that memory was free
   before. False: nothing was waited for. */
bool sg_memory_settle_launches(struct sg_core *core);

/* A free of a block of ours while a capture is active. A free in stream order notes a number, and the driver is not
   asked. For any other the driver is, since a call that it forbids ruins the capture. *ret_done: the free is answered;
   else the core is to free the block. Between sg_enter() and sg_leave(). */
CUresult sg_free_captured(struct sg_core *core, CUdeviceptr address, const struct sg_request *request, bool *ret_done);

/* A free of a block that may belong to a graph, with no capture active: callers that expect a wait still have one.
   *ret_done: as above. */
CUresult sg_free_kept(struct sg_core *core, CUdeviceptr address, const struct sg_request *request, bool *ret_done);

/* True if a block of ours begins at the address: only such a free may be put off. */
bool sg_free_is_block(struct sg_core *core, CUdeviceptr address);

/* True if there is any of that, which is counted by captures.c and graph_blocks.c. No lock, anywhere. */
extern atomic_int sg_captures_deferred __attribute__((visibility("hidden"))),
    sg_graphs_gone __attribute__((visibility("hidden")));
static inline bool sg_memory_has_deferred(void)
{
    return atomic_load_explicit(&sg_captures_deferred, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&sg_graphs_gone, memory_order_relaxed) > 0;
}

#endif
