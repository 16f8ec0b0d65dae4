/* What the do-nothing driver and runtime offer besides CUDA's own functions. */
#ifndef SG_NULL_H
#define SG_NULL_H

#include <stddef.h>

void null_set_device(int ordinal);  /* of the calling thread */
void null_set_create_ns(long ns);   /* how long cuMemCreate sleeps */

/* The runtime's, as in cuda_runtime_api.h. */
int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);
int cudaRuntimeGetVersion(int *ret);

#endif
