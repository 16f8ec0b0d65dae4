/* Sets: a value written over rows of memory. A long stretch of zeros gives its pages back, which read as zero again. */
#ifndef SIM_FILL_H
#define SIM_FILL_H

#include "streams/work.h"

struct sim_fill {
    uint64_t address, pitch, width, height; /* width in elements */
    unsigned value, element;
    bool sparse; /* lies in the device's memory file */
    uint64_t lost; /* an address without memory when it ran; 0: there was none */
};

/* Not locked. Enters it into the stream; with `blocking`, returns once it is complete where the driver does. */
CUresult sim_fill(struct sim_fill fill, CUstream stream, bool blocking);

/* Locked. For a node: the work, and what was said to it. */
CUresult sim_set_work(const CUDA_MEMSET_NODE_PARAMS *params, struct sim_work **ret);
void sim_set_params(const struct sim_work *work, CUDA_MEMSET_NODE_PARAMS *ret);

#endif
