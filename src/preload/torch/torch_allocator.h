/* PyTorch's own allocator, an object of a class that it does not export: its virtual functions, called and taken the
   place of. Where they stand is known from another class with the same base, which is exported with all its names
   (torch::cuda::CUDAPluggableAllocator). */
#ifndef SG_TORCH_ALLOCATOR_H
#define SG_TORCH_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>

/* Has PyTorch ask whether to cache before it reads whether it does, where it has a switch for that. To be called until
   that is decided, whenever PyTorch asks something else: its libraries are loaded one after the other. Changes nothing
   that PyTorch does. */
void sg_torch_allocator_watch(void);

/* Replaces the functions of PyTorch's cache that would answer wrongly while it is off: statistics, empty_cache,
   sending a tensor, the begin of a pool. False, with nothing changed, where this PyTorch lacks the names, or another
   allocator is in force. Before PyTorch's first allocation; the first call alone does anything. */
bool sg_torch_allocator_take(void);

/* Keeps to the limits that set_per_process_memory_fraction() has set before; later ones are kept to as they come. */
void sg_torch_allocator_limit(void);

/* Tells PyTorch's allocator to cache (again), or not to: what it serves from then on. Blocks are freed as they were
   allocated. True if it does so: PyTorch before 2.9 has no such switch. After sg_torch_allocator_take(). */
bool sg_torch_allocator_cache(bool on);

/* True if PyTorch's own allocator is in force, has a switch, and says what it has by structures that are known. */
bool sg_torch_allocator_answers(void);

/* True if PyTorch asks, at each allocation and in the thread that makes it, whether to cache. Then the answer may differ
   from one to the next. Not while it decides whether to cache at all. */
bool sg_torch_allocator_routes(void);

/* Has PyTorch's cache give what it holds idle to the driver; whether it was asked. */
bool sg_torch_allocator_empty(void);

/* A block out of PyTorch's cache, whether that is on or not, in memory of the driver's; and its free. The driver
   must have that much: no C++ exception may come. On the current device. */
void *sg_torch_allocator_get(size_t bytes);
void sg_torch_allocator_put(void *block);

/* Copies on the current device by PyTorch's own function; the caller waits. */
void sg_torch_allocator_copy(void *to, const void *from, size_t bytes);

#endif
