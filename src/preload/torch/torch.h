/* PyTorch: its question whether to cache, the stream that it has current, its pluggable interface. */
#ifndef SG_TORCH_H
#define SG_TORCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "driver.h"

enum sg_torch_mode {
    SG_TORCH_UNKNOWN,    /* PyTorch has allocated nothing yet, or isn't there */
    SG_TORCH_BENEATH,    /* its cache is on */
    SG_TORCH_DIRECT,     /* its cache is off for good: every tensor is a cudaMalloc */
    SG_TORCH_SWITCHABLE, /* the same, but the cache can be switched on again */
    SG_TORCH_SWITCHED,   /* which has happened */
    SG_TORCH_PLUGGED     /* its allocator calls segalloc_torch_malloc() */
};

/* For statistics: "direct", "beneath" …; NULL for SG_TORCH_UNKNOWN. */
const char *sg_torch_mode_text(void);

/* Whether PyTorch's mode is known. */
bool sg_torch_settled(void);

/* Whether tensors came here one by one, at some time at least. And what may still become, or has become, of that. */
bool sg_torch_direct(void);
bool sg_torch_switchable(void);
bool sg_torch_switched(void);

/* Whether PyTorch's statistics are made of ours. */
bool sg_torch_counts(void);

/* Whether `pointer` begins a block that was served to PyTorch as a tensor, not as a segment of its cache. */
bool sg_torch_is_direct(const void *pointer);

/* Whether PyTorch's cache is on although nobody asked for that: what it has to give away then is to be such that it
   can be. */
bool sg_torch_caches(void);

/* The process allocates for the first time. Takes the loader's lock. */
void sg_torch_begins(void);

/* PyTorch begins to allocate for a pool of its own, of graphs or a MemPool, whose number is a pair of words. Those are
   its cache's, with all that it knows of them, so with pytorch:auto the cache is on from here on. */
void sg_torch_pool_begins(uint64_t first, uint64_t second);

/* A capture of that mode begins in this thread. torch.compile makes its graphs thread-locally, and looks for their
   memory in PyTorch's own cache: where that is off, a line says the way out. Another says it where a second graph is
   captured for one pool: here each graph keeps what was freed in its capture. */
void sg_torch_captures(CUstreamCaptureMode mode);

/* The stream that PyTorch has current on the current device, by its own functions (facts: PyTorch 2.11, their ABI is
   that of the Itanium C++ ABI for a 16-byte class). False where they are not to be had. */
bool sg_torch_stream(CUstream *ret);

/* Makes `device` current where it isn't: PyTorch frees without doing so. Returns whether sg_torch_pop_device() has a
   context to pop again. The primary context that this needs stays retained: PyTorch holds it as well. */
bool sg_torch_push_device(const struct sg_driver *driver, int device);
void sg_torch_pop_device(const struct sg_driver *driver, bool pushed);

#endif
