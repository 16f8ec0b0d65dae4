/* PyTorch's current stream and device, by its own functions.

   Why. PyTorch calls cudaMalloc without a stream, though a tensor belongs to the thread's current one. A free on that stream's
   order needs to know it. And PyTorch frees without making the tensor's device current.

   Limits. A thread's current streams are destroyed with it. Static tensors that are destroyed after that have no stream here, so they
   are freed after all work.

   For example, `with torch.cuda.stream(s):` makes s current. A tensor of 4 MiB is allocated: sg_torch_stream() says s, and
   its free waits for s alone. */
#ifndef SG_TORCH_CURRENT_H
#define SG_TORCH_CURRENT_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "driver/driver.h"

/* The stream that PyTorch has current on the current device, by its own functions (facts: PyTorch 2.11, their ABI is
   that of the Itanium C++ ABI for a 16-byte class). False where they are not to be had. */
bool sg_torch_stream(CUstream *ret);

/* True if PyTorch's own functions for streams are to be had. The handle of a stream, by the two words of its
   c10::cuda::CUDAStream; false where they are not. The first call takes the loader's lock. */
bool sg_torch_has_streams(void);
bool sg_torch_stream_handle(uint64_t first, uint64_t second, CUstream *ret);

/* Makes `device` current where it isn't: PyTorch frees without doing so. Returns whether sg_torch_pop_device() has a
   context to pop again. The primary context that this needs stays retained: PyTorch holds it as well. */
bool sg_torch_push_device(const struct sg_driver *driver, int device);
void sg_torch_pop_device(const struct sg_driver *driver, bool pushed);

#endif
