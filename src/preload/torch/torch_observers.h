/* PyTorch's observers of running out, which its cache calls: they are called from here where the cache is not asked.

   Why. Programs attach an observer (torch._C._cuda_attach_out_of_memory_observer) that writes a snapshot when memory
   runs out. Without the cache nobody would call it.

   Limits. 64 observers; later ones are not called.

   For example, a tensor of 3 MiB is refused on a card of 8 GiB with 1 MiB free. An observer is given device 0, 20 MiB
   (the segment that the cache would have asked for), 8 GiB and 1 MiB. */
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
