/* Policy of frees: whether they follow the order of streams, and whether streams that used a block are recorded. */
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

/* Starts to follow the order of streams, where the configuration leaves room for it: a caller names its streams. */
void sg_memory_follow(void);

#endif
