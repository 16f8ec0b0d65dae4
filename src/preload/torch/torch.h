/* PyTorch: its question whether to cache, the stream that it has current, its pluggable interface. */
#ifndef SG_TORCH_H
#define SG_TORCH_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "driver/driver.h"
#include "track/torch_mode.h"

/* True if `pointer` begins a block that was served to PyTorch as a tensor, not as a segment of its cache. */
bool sg_torch_is_direct(const void *pointer);

/* The process allocates for the first time. Takes the loader's lock. */
void sg_torch_begins(void);

/* PyTorch begins to allocate for a pool of its own, of graphs or a MemPool, whose number is a pair of words. Those are
   its cache's, with all that it knows of them. With pytorch:auto what goes into a pool is served by that cache, and the
   rest as before; where this PyTorch can't do that, the cache is on for good. */
void sg_torch_pool_begins(uint64_t first, uint64_t second);

/* PyTorch is asked to record its history of memory, which its cache does of what it serves. With pytorch:auto that cache
   is on for good from here on; a line says so. */
void sg_torch_history(bool on);

/* PyTorch has a pool that its cache is to use when memory runs out. So that cache is on for good from here on, too. */
void sg_torch_spare_pool(void);

/* True if a tensor that is allocated now is to come from PyTorch's cache, where that is not on for good. */
bool sg_torch_pool_allocates(void);

/* From here on segments of PyTorch's cache are told from tensors. */
void sg_torch_caches_segments(void);

/* True if PyTorch's cache has given what it holds idle to the driver: not where it holds nothing, nor in a capture. */
bool sg_torch_gives_back(void);

/* The stream that PyTorch has current on the current device, by its own functions (facts: PyTorch 2.11, their ABI is
   that of the Itanium C++ ABI for a 16-byte class). False where they are not to be had. */
bool sg_torch_stream(CUstream *ret);

/* True if PyTorch's own functions for streams are to be had. The handle of a stream, by the two words of its
   c10::cuda::CUDAStream; false where they are not. The first call takes the loader's lock. */
bool sg_torch_has_streams(void);
bool sg_torch_stream_handle(uint64_t first, uint64_t second, CUstream *ret);

/* A symbol of a loaded library of PyTorch's, whose file name begins so; NULL: not to be had. Takes the loader's lock. */
void *sg_torch_symbol(const char *library, const char *name);

/* Makes `device` current where it isn't: PyTorch frees without doing so. Returns whether sg_torch_pop_device() has a
   context to pop again. The primary context that this needs stays retained: PyTorch holds it as well. */
bool sg_torch_push_device(const struct sg_driver *driver, int device);
void sg_torch_pop_device(const struct sg_driver *driver, bool pushed);

#endif
