/* Every prototype of cuda_proto.h declared again after cuda.h's own: a difference does not compile. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#if __has_include(<cudaProfiler.h>) /* not among the headers on PyPI */
#include <cudaProfiler.h>
#endif

#define SG_CUDA_ABI_H
#include "../../src/driver/cuda_proto.h"
