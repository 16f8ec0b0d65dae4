/* Memory that graphs use. A graph touches the memory that it captured at each launch.

   Nouns. A block that was handed out or freed in a capture *belongs* to its graph. A *hold* is a user object of the
   driver's that the graph retains. The driver destroys it with the last of the graph, its clones and its executables. A
   *spare* is a block that was freed in its capture and may serve that capture again.

   Why. Nobody else may get such a block until the graph is gone, since a launch would write into another's memory.

   How. A table has the blocks by address, each with up to 4 holds. A free of such a block is kept in the table. The
   driver's thread sets a flag in the hold when the graph is gone, for it may call neither the driver nor wait. The next
   allocation frees what the flags let go.

   Limits. 1,048,576 holds; a block of more than 4 graphs stays for ever. With a driver that has no user objects, blocks
   are put off to the end of the capture alone.

   For example, a capture allocates 16 MiB, and the program frees them after it. The graph is launched 100 times: the 16
   MiB stay. cuGraphExecDestroy and cuGraphDestroy follow, the driver destroys the object, the flag is set. The next
   cudaMalloc finds one flag, and the 16 MiB are idle. */
#ifndef SG_GRAPH_BLOCKS_H
#define SG_GRAPH_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/core.h"
#include "track/request.h"

/* True if any block belongs to a graph. */
extern atomic_int sg_graphs_blocks __attribute__((visibility("hidden")));
static inline bool sg_graphs_retain_any(void)
{
    return atomic_load_explicit(&sg_graphs_blocks, memory_order_acquire) > 0;
}

/* A live block belongs to the graph that `stream` is being captured for, from here on. `fresh`: it has just been
   handed out to that stream. False: the stream is not being captured, or the driver has no way to say when a graph
   is gone. */
bool sg_graphs_adopt(struct sg_core *core, CUstream stream, CUdeviceptr address, bool fresh);

enum sg_graphs_answer { SG_GRAPHS_FREE /* belongs to none */, SG_GRAPHS_RETAINED, SG_GRAPHS_RETAINED_BEFORE /* freed
                                          twice */ };

/* The program frees a block; without `request` the driver does. Retained: freed as `request` says once its graph is
   gone; `waited`: whoever else used it is done. */
enum sg_graphs_answer sg_graphs_retain(CUdeviceptr address, const struct sg_request *request, bool waited);

/* The retained blocks of a capture. Within a capture PyTorch's own cache serves a stream again what that stream has
   freed: a graph runs its work in order. A kept block that was handed out to `stream` in its capture and freed there
   becomes a spare. Not so where another stream has joined the capture and may use the block. */
void sg_graphs_add_spare(CUstream stream, CUdeviceptr address);
/* A spare of that size, which is live again and belongs to its graph as before. False: there is none. */
bool sg_graphs_reuse(CUstream stream, size_t bytes, CUdeviceptr *ret);
/* No capture is active any more. */
void sg_graphs_forget_spares(void);

/* A context has gone, and its blocks with it. */
void sg_graphs_context_gone(CUcontext context);

/* True if a block that the program has freed is kept for a graph. No lock. */
bool sg_graphs_retain_freed(void);

/* Bytes of such blocks of a device, for who reports them: others may allocate and free meanwhile. No lock is held. */
uint64_t sg_graphs_freed_bytes(struct sg_core *core, int device);

/* The driver says on a thread of its own that a graph is gone, some time after it is. Waits until that thread has told of
   all graphs that are gone by now. That is 2 s at most, since a destructor of the program's may hold it up. After that has
   happened nobody waits before the thread has gone on. Callers with `refused` have been refused memory and fail without it.
   So they wait up to `wait_limit`, if that is more, and even where others have waited in vain. On a busy machine the thread may
   have no processor for long. Nothing where no freed block is kept. The order in which a driver calls destructors is not documented:
   one of another order leaves more to wait for than this has seen. No lock is held. */
void sg_graphs_await_destroyed(bool refused);

/* The same where the block at `address` belongs to a graph: for a free that natively would wait too. */
void sg_graphs_await_destroyed_of(CUdeviceptr address);

/* Frees what belonged to graphs that are gone. Between sg_enter() and sg_leave(), with no capture active. */
void sg_graphs_run_deferred(struct sg_core *core);

#endif
