/* Arrays: opaque memory of the driver's that is addressed by element. */
#ifndef SG_RT_ARRAY_H
#define SG_RT_ARRAY_H

#include "libcuda.h"

/* Bytes of one element. */
cudaError_t sg_rt_array_element(const struct sg_rt_driver *driver, CUarray array, size_t *ret);

/* Exported. It returns a description, so it needs no driver. */
#pragma GCC visibility push(default)
struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind);
#pragma GCC visibility pop

#endif
