/* Traces as others want them. */
#ifndef SG_EXPORT_TORCH_SNAPSHOT_H
#define SG_EXPORT_TORCH_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "reader/trace_reader.h"

/* Writes a memory snapshot as PyTorch's torch.cuda.memory._dump_snapshot() does, for torch.cuda._memory_viz and
   pytorch.org/memory_viz: what is alive at `to_ns`, or after event `last` (as walk.h counts them; UINT64_MAX: the end),
   and the events from `from_ns` on (both since the first event). Segments are the pages that blocks lay in, as far as
   they fit the card. Holds the trace in memory. 0 or a negative errno; *ret_events is how many events were written. */
int sg_trace_export_torch(struct sg_trace_reader *reader, uint64_t from_ns, uint64_t to_ns, uint64_t last, FILE *out,
                          uint64_t *ret_events);

#endif
