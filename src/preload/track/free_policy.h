/* Who frees by the order of streams, and whether the streams that used a block are recorded then. */
#ifndef SG_FREE_POLICY_H
#define SG_FREE_POLICY_H

#include <stdbool.h>

/* PyTorch's pluggable allocator tells of recorded streams. */
void sg_memory_torch_records(void);

/* Whether it has. */
bool sg_memory_torch_recorded(void);

/* PyTorch allocates by its pluggable interface. */
void sg_memory_torch_plugged(void);

/* Whether somebody frees by the order of streams without recording the streams that used a block. Observations by
   the host matter only then. */
bool sg_memory_guesses(void);

/* Starts to follow the order of streams, where the configuration leaves room for it: a caller names its streams. */
void sg_memory_follow(void);

#endif
