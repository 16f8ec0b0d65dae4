/* PyTorch's mode: which of two caches has its tensors. And the lines about captures that need the other one.

   Why. PyTorch has a cache of its own. While it is on, the library serves that cache's segments; while it is off, each
   tensor. Frees, statistics and the error of running out differ between the two.

   How. PyTorch's first question decides (torch/). Only SWITCHABLE changes later, to SWITCHED, and stays that.

   For example, PyTorch 2.11 with pytorch:auto asks whether to cache and gets no: SWITCHABLE. The program turns on
   memory history, which PyTorch's cache records: SWITCHED. Tensors from before stay ours, later ones are that cache's.
   */
#ifndef SG_TORCH_MODE_H
#define SG_TORCH_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"

enum sg_torch_mode {
    SG_TORCH_UNKNOWN,    /* PyTorch has allocated nothing yet, or isn't there */
    SG_TORCH_BENEATH,    /* its cache is on */
    SG_TORCH_DIRECT,     /* its cache is off for good: every tensor is a cudaMalloc */
    SG_TORCH_SWITCHABLE, /* the same, but the cache can be switched on again, for some tensors or for good */
    SG_TORCH_SWITCHED,   /* which has happened for good */
    SG_TORCH_PLUGGED     /* its allocator calls segalloc_torch_malloc() */
};

enum sg_torch_mode sg_torch_mode(void);
void sg_torch_mode_set(enum sg_torch_mode mode);
/* Sets it where it is `before`. */
void sg_torch_mode_change(enum sg_torch_mode before, enum sg_torch_mode mode);

/* For statistics: "direct", "beneath" …; NULL for SG_TORCH_UNKNOWN. */
const char *sg_torch_mode_text(void);

/* True if PyTorch's mode is known. */
bool sg_torch_mode_known(void);

/* True if tensors came here one by one, at some time at least. And what may still become, or has become, of that. */
bool sg_torch_direct(void);
bool sg_torch_switchable(void);
bool sg_torch_switched(void);

/* True if PyTorch's statistics are made of ours. */
bool sg_torch_counts(void);

/* True if PyTorch's cache is on although nobody asked for that. Memory that it gives to other processes
   must then be exportable by legacy handles (ipc.h). */
bool sg_torch_caches(void);

/* The pool that this thread's next capture is for, as a pair of words; 0, 0: none. */
void sg_torch_mode_next_pool(uint64_t first, uint64_t second);

/* A capture of that mode begins in this thread. torch.compile makes its graphs thread-locally, and looks for their
   memory in PyTorch's own cache: where that is off, a line says the way out. Another says it where a second graph is
   captured for one pool: here each graph keeps what was freed in its capture. */
void sg_torch_captures(CUstreamCaptureMode mode);

#endif
