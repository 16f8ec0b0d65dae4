/* The streams that memory was asked for, each with a pool of small and one of large blocks. */
#ifndef SG_REQUEST_STREAM_H
#define SG_REQUEST_STREAM_H

#include "caching_state.h"

/* Made at its first use; NULL when there is no host memory. */
struct torch_stream *torch_stream_of(struct sg_torch *torch, uint64_t id);

#endif
