/* PyTorch's question whether to keep its cache, and the answer.

   Why. PyTorch asks once, at its first allocation, whether PYTORCH_NO_CUDA_MEMORY_CACHING is set. From 2.7 on it asks by
   c10::utils::check_env(), which this library exports before libc10.so. The answer reaches this process alone, where a variable
   of the environment would be inherited.

   How. The user's own variable stands. Else `pytorch` decides. With `auto` the cache is off, unless something in the
   process relies on it. That may be a server that reckons with it, a library that interposes cudaMalloc, history, or a
   spare pool.

   For example, PyTorch 2.11 without vLLM asks: the allocator is taken, its switch turned off, mode SWITCHABLE. PyTorch itself
   gets the answer "not set", so it reads the switch at each allocation. With vLLM loaded the mode is BENEATH. */
#ifndef SG_TORCH_QUESTION_H
#define SG_TORCH_QUESTION_H

/* The process allocates for the first time: decides for a PyTorch before 2.7, which does not ask. Takes the loader's lock. */
void sg_torch_begins(void);

#endif
