/* PyTorch's own error of running out of memory, which Python programs know as torch.OutOfMemoryError.

   Why. Programs catch that class and make their batch smaller. An error of the runtime becomes torch.AcceleratorError,
   which they don't catch.

   How. The exception is made and thrown from C by functions of PyTorch's C++ runtime (torch_cxx.h). It passes through
   frames of this library, which has unwind tables for that.

   For example, torch.ones of 6 GiB on a card of 4 GiB: "CUDA out of memory. Tried to allocate 6.00 GiB. GPU 0 has a
   total capacity of 4.00 GiB of which …", as PyTorch words it. */
#ifndef SG_TORCH_OOM_H
#define SG_TORCH_OOM_H

#include <stddef.h>

/* Throws c10::OutOfMemoryError with PyTorch's usual text for `bytes` on `device` (-1: the current one). Called from
   the outermost frame of ours that PyTorch called, with no lock held and not between sg_enter() and sg_leave().
   Returns where PyTorch's libraries lack something that this takes. Takes the loader's lock the first time. */
void sg_torch_throw_out_of_memory(int device, size_t bytes);

/* A tensor of this thread finds no memory at first. That is a retry of the current device, where PyTorch's cache would
   count one. */
void sg_torch_retries(void);

/* Throws that error from PyTorch's cudaMalloc, if its every tensor comes to us. The error that its runtime keeps is
   cleared by `get_last_error` (NULL: it cannot be), as PyTorch does itself before it throws. Returns where the error code
   is to be returned. */
void sg_torch_ran_out(int (*get_last_error)(void), size_t bytes);

#endif
