/* Memory that the order of the work alone makes a program hold. There is one pool for all streams, whose free bytes can be put
   together at will (no fragmentation, no rounding). A freed byte goes to another stream once the program's own waits
   order that stream after the owner's work before the free. The host's waits count for all streams, and
   so do its queries, which count as answered yes. No wait is added.

   The bytes of a tag that is paused are nobody's until it comes back.

   An allocation takes bytes that the fewest streams could take first, of those the oldest; what is missing makes the
   pool larger. Without rows about work each allocation counts as work on its stream. A block used on other streams
   (record_stream) comes free after their work too. Knowing the future one could sometimes choose better, so this is
   what a careful allocator without fragmentation needs, not a proof that nothing smaller is possible. */
#ifndef SG_ANALYSIS_ORDER_BOUND_H
#define SG_ANALYSIS_ORDER_BOUND_H

#include <stdbool.h>
#include <stdint.h>

#include "segalloc/trace_format.h"

struct sg_bound;

/* Blocks of less than `smallest` bytes are left out. NULL: no host memory. */
struct sg_bound *sg_bound_new(uint64_t smallest);
void sg_bound_delete(struct sg_bound *bound);

/* One record of the trace; `device` is that of its stream. 0 or -ENOMEM. */
int sg_bound_add(struct sg_bound *bound, const struct segalloc_trace_record *record, int device);

struct sg_bound_result {
    bool ordered; /* there were rows about work and more than one stream: else pool and live are the same */
    uint64_t pool_bytes, live_bytes; /* peaks, of all devices */
};
struct sg_bound_result sg_bound_result(const struct sg_bound *bound);

#endif
