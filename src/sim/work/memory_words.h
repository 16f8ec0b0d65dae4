/* Words of memory that a stream writes, or waits for. */
#ifndef SIM_MEMORY_WORDS_H
#define SIM_MEMORY_WORDS_H

#include "streams/work.h"

/* Not locked. Each operation is a piece of work of its own, all or none of them. A capture makes one node of them. */
CUresult sim_words(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *ops);

/* Locked. For a node: the work, and what was said to it. */
CUresult sim_words_work(const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct sim_work **ret);
void sim_words_params(const struct sim_work *work, CUDA_BATCH_MEM_OP_NODE_PARAMS *ret);

#endif
