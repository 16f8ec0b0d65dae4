/* PyTorch: its question whether to cache, the stream that it has current, its pluggable interface. */
#ifndef SG_TORCH_H
#define SG_TORCH_H

#include <stdbool.h>

#include "cuda_abi.h"
#include "driver.h"

/* Whether PyTorch was told not to cache, so that its every tensor is a cudaMalloc. */
bool sg_torch_direct(void);

/* A capture of that mode begins. torch.compile makes its graphs thread-locally, and looks for their memory in PyTorch's
   own cache, which is not in use in direct mode: where such a process then ends with a failure, a line says the way
   out. */
void sg_torch_captures(CUstreamCaptureMode mode);

/* The stream that PyTorch has current on the current device, by its own functions (facts: PyTorch 2.11, their ABI is
   that of the Itanium C++ ABI for a 16-byte class). False where they are not to be had. */
bool sg_torch_stream(CUstream *ret);

/* Makes `device` current where it isn't: PyTorch frees without doing so. Returns whether sg_torch_pop_device() has a
   context to pop again. The primary context that this needs stays retained: PyTorch holds it as well. */
bool sg_torch_push_device(const struct sg_driver *driver, int device);
void sg_torch_pop_device(const struct sg_driver *driver, bool pushed);

#endif
