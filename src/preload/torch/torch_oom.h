/* PyTorch's own error of running out of memory, which Python programs know as torch.OutOfMemoryError. */
#ifndef SG_TORCH_OOM_H
#define SG_TORCH_OOM_H

#include <stddef.h>

#include "serve/callers.h"

/* Throws c10::OutOfMemoryError with PyTorch's usual text for `bytes` on `device` (-1: the current one). Called from
   the outermost frame of ours that PyTorch called, with no lock held and not between sg_enter() and sg_leave().
   Returns where PyTorch's libraries lack something that this takes. Takes the loader's lock the first time. */
void sg_torch_throw_out_of_memory(int device, size_t bytes);

/* Throws that error from cudaMalloc, if `module` is PyTorch and its every tensor comes to us. The error that its
   runtime keeps is cleared, as PyTorch does itself before it throws. Returns where the error code is to be returned. */
void sg_torch_ran_out(const struct sg_module *module, size_t bytes);

#endif
