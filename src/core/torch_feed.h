/* Plays the records of a trace to PyTorch's policy. Memory grows with the blocks alive at once, not with the trace.
   */
#ifndef SG_TORCH_FEED_H
#define SG_TORCH_FEED_H

#include "segalloc/trace_format.h"
#include "torch_policy.h"

struct sg_torch_feed;

/* For one device's records; several feeds may be given the same ones, each with a policy of its own. `torch` is kept
   and stays the caller's. NULL when there is no host memory. */
struct sg_torch_feed *sg_torch_feed_create(struct sg_torch *torch);
void sg_torch_feed_destroy(struct sg_torch_feed *feed); /* frees nothing of the policy's */

/* Plays `count` records up to the first that fails, and says in *ret_done how many were played. What PyTorch's
   allocator is told is played: allocations, frees, record_stream and empty_cache; other kinds, and frees of ids that
   are not alive, are passed over. Returns 0; -ENOMEM for an allocation that ran out (stats->ooms counts it) or no
   host memory; -EEXIST for an allocation under an id that is alive; or an error of the policy's table. A caller may
   go on behind the record that failed: it left nothing behind. */
int sg_torch_feed(struct sg_torch_feed *feed, const struct segalloc_trace_record *records, size_t count,
                  size_t *ret_done);

#endif
