/* Policy of frees: whether they follow the order of streams, and whether streams that used a block are recorded.

   Why. Stream order is safe only if every stream that used a block is known. A caller that records streams
   (record_stream) says so itself. For others the core *guesses*: any stream that the host could have passed the block
   to counts as a user.

   For example, PyTorch's tensors come one by one and its record_stream reaches the library: a tensor of stream A that B
   used waits for both. If it does not, each observation of the host counts: after a host function on A, streams that it
   may have informed count as users. */
#ifndef SG_FREE_POLICY_H
#define SG_FREE_POLICY_H

#include <stdbool.h>

/* PyTorch's pluggable allocator tells of recorded streams. */
void sg_memory_torch_records(void);

/* True if it has. */
bool sg_memory_torch_recorded(void);

/* PyTorch allocates by its pluggable interface. */
void sg_memory_torch_plugged(void);

/* PyTorch's record_stream reaches the library, by its own allocator or by the pluggable one; whether it does. PyTorch orders
   its copies between devices by events. Every other use by another device's stream is recorded. */
void sg_memory_record_stream_hooked(void);
bool sg_memory_hooks_record_stream(void);

/* True if somebody frees by the order of streams without recording the streams that used a block. Observations by
   the host matter only then. */
bool sg_memory_guesses(void);

#endif
