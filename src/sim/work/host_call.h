/* Host functions and callbacks of the program, called in stream order. */
#ifndef SIM_HOST_CALL_H
#define SIM_HOST_CALL_H

#include "streams/work.h"

struct sim_host_call {
    CUhostFn function;
    CUstreamCallback callback;
    CUstream handle;
    void *user_data;
};

/* Not locked. Enters the call into the stream. */
CUresult sim_host_call(CUstream handle, struct sim_host_call call);

/* Locked. For a node: the work, and what was said to it. */
CUresult sim_host_work(const CUDA_HOST_NODE_PARAMS *params, struct sim_work **ret);
void sim_host_params(const struct sim_work *work, CUDA_HOST_NODE_PARAMS *ret);

#endif
