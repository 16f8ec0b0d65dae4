/* The streams that memory was asked for, each with a pool of small and one of large blocks.

   Memory that was asked for on one stream serves no other: PyTorch knows no order of streams but record_stream(). A program
   with many streams therefore holds memory for each. For example, streams 1 and 2 allocate and free 30 MiB, one
   after the other. Two segments of 30 MiB are held, though only one was ever in use. */
#ifndef SG_REQUEST_STREAM_H
#define SG_REQUEST_STREAM_H

#include "caching_state.h"

/* The stream of an id, made at its first use; NULL: no host memory. Most requests are of the stream that asked last. */
struct torch_stream *torch_stream_of(struct sg_torch *torch, uint64_t id);

#endif
