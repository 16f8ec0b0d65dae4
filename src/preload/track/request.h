/* A request for memory, or a free, as the program asked for it.

   Why a struct. A free may be put off for a capture or a graph and made later by another thread. It must then still be
   known how it was asked for.

   For example, cudaFreeAsync on stream 7: `stream` 7, `has_stream`, `stream_order`. The block belongs to a graph, so
   this is kept with it. When the graph is gone the free is made with `was_deferred`: stream 7 may be destroyed by then,
   so its handle is not used. */
#ifndef SG_REQUEST_H
#define SG_REQUEST_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

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

#endif
