/* The CUDA runtime as one table of typed pointers, found at run time: the trainer is built without CUDA. */
#ifndef TRAIN_CUDA_RT_H
#define TRAIN_CUDA_RT_H

#include <stddef.h>

/* Values of the runtime's ABI, the same in CUDA 12 and 13. */
enum {
    CUDA_SUCCESS_VALUE = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_COPY_TO_DEVICE = 1,
    CUDA_COPY_TO_HOST = 2,
    CUDA_EVENT_WITHOUT_TIMING = 2,
    CUDA_STREAM_NON_BLOCKING = 1,
};

struct cuda_rt {
#define CUDA_RT(name, result, parameters) result(*name) parameters;
#include "memory/cuda_rt.def"
#undef CUDA_RT
    void *library;
};

/* Opens libcudart.so.13, else .12, and fills the table, and selects device `number` modulo how many there are. On
   failure returns -1 with one line in `error` that names the way out; the library stays open for the life of the
   process (its threads may outlive us). */
int cuda_rt_open(struct cuda_rt *ret_rt, int number, char *error, size_t error_size);

/* Host memory instead of a device, where all is done at once. */
extern const struct cuda_rt cuda_rt_host;

#endif
