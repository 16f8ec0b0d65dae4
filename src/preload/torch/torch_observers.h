/* PyTorch's observers of running out, which its cache calls: they are called from here where the cache is not asked. */
#ifndef SG_TORCH_OBSERVERS_H
#define SG_TORCH_OBSERVERS_H

#include <stddef.h>
#include <stdint.h>

#include "torch/cxx_function.h"

/* Takes over the copy of an observer, for good: PyTorch has no way to detach one. */
void sg_torch_observers_add(struct sg_cxx_function observer);

/* Calls each one as PyTorch's cache does, with what that would have asked the driver for. An observer may ask about
   memory, allocate, and throw. No lock is held. */
void sg_torch_observers_call(int device, size_t bytes, size_t total_bytes, size_t free_bytes);

#endif
