/* The runtime's description of a box of bytes, in the driver's terms. */
#ifndef SG_RT_COPY_BOX_H
#define SG_RT_COPY_BOX_H

#include "libcuda.h"

cudaError_t sg_rt_describe_box(const struct sg_rt_driver *driver, const struct cudaMemcpy3DParms *p,
                               CUDA_MEMCPY3D *ret);

#endif
