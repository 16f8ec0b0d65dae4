/* The use of PyTorch's switch: which tensors its cache serves, and from when on for good.

   Why. With pytorch:auto the library serves tensors, so that blocks of all sizes share pages. Some things are PyTorch's cache's
   own: memory of pools and graphs, its history of memory, its spare pool. Where a program uses one of those, its cache has to
   serve it.

   How. For a pool the answer is given tensor by tensor, if PyTorch asks each time. For the others the cache goes on for good: mode
   SWITCHED (track/torch_mode.h).

   For example, a program captures a CUDA graph, and PyTorch calls beginAllocateToPool. Tensors of that pool then come
   from its cache, in segments of 2 MiB or more that it asks of us. Other tensors are ours as before. */
#ifndef SG_TORCH_SWITCH_H
#define SG_TORCH_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

/* True if `pointer` begins a block that was served to PyTorch as a tensor, not as a segment of its cache. */
bool sg_torch_is_direct(const void *pointer);

/* PyTorch begins to allocate for a pool of its own, of graphs or a MemPool, whose number is a pair of words. Those are
   its cache's, with all that it knows of them. With pytorch:auto that cache serves tensors of the pool, and the rest is
   served as before. If this PyTorch can't do that, the cache is on for good. */
void sg_torch_pool_begins(uint64_t first, uint64_t second);

/* A line, once, where pools are bypassed by pytorch:direct. */
void sg_torch_explain_pool(void);

/* PyTorch is asked to record its history of memory, which its cache does of what it serves. With pytorch:auto that cache
   is on for good from here on; a line says so. wants_history(): it was asked so before its mode was known. Once the mode is
   decided, explain_history() says what becomes of that. */
void sg_torch_history(bool on);
bool sg_torch_wants_history(void);
void sg_torch_explain_history(void);

/* PyTorch has a pool that its cache is to use when memory runs out. So that cache is on for good from here on, too.
   wants_spare_pool(): it had one before its mode was known. */
void sg_torch_spare_pool(void);
bool sg_torch_wants_spare_pool(void);

/* True if a tensor that is allocated now is to come from PyTorch's cache, where that is not on for good. */
bool sg_torch_pool_allocates(void);

/* From here on segments of PyTorch's cache are told from tensors. */
void sg_torch_caches_segments(void);

/* True if PyTorch's cache has given what it holds idle to the driver: not where it holds nothing, nor in a capture. */
bool sg_torch_gives_back(void);

#endif
