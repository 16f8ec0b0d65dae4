/* The settings of PyTorch's native CUDA allocator, in PyTorch's own syntax.

   Why a second reader beside config/conf.h: a replay of PyTorch's allocator has to take what PyTorch takes, and refuse what
   it refuses. That differs from segalloc's own options in syntax, in bounds and in what an error does: PyTorch ends.

   Settings that decide where memory goes are kept. Keys that PyTorch knows and that change nothing of that (pinned memory,
   locks, graph capture) are accepted, and their values checked.

   Examples:
     max_split_size_mb : 128MiB , expandable_segments:True     134217728 bytes, and True: white space and the text behind
                                                               a number do not matter
     max_split_size_mb:15            "max_split_size_mb:15 is too small, it must be at least 20 (MiB, as
                                     large_segment_size_mb)"
     roundup_power2_divisions:3      "roundup_power2_divisions: 3 divisions are invalid, they must be a power of two"

   Rules and bounds: c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp of PyTorch 2.11. */
#ifndef SG_ALLOCATOR_CONFIG_H
#define SG_ALLOCATOR_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/conf.h"

enum { SG_TORCH_INTERVALS = SG_ROUNDUP_INTERVALS, SG_TORCH_ERROR_TEXT = 256 };
#define SG_TORCH_UNLIMITED UINT64_MAX

/* Settings in base units. */
struct sg_torch_conf {
    bool expandable_segments;
    uint64_t large_segment_size;     /* bytes: segment for 1 to 10 MiB, chunk of a large expandable segment */
    uint64_t max_split_size;         /* bytes, or SG_TORCH_UNLIMITED */
    uint64_t max_non_split_rounding; /* bytes */
    uint64_t roundup_divisions[SG_TORCH_INTERVALS]; /* interval i: [2^i MiB, 2^(i+1) MiB), open at both ends; 0: off */
    double garbage_collection_threshold;            /* 0: off */
    double memory_fraction;                         /* per_process_memory_fraction; 1: no limit */
    bool whole_segments; /* not PyTorch's: a block is a segment of its own, which is what a process can give to
                            another */
};

/* PyTorch's defaults. */
void sg_torch_conf_init(struct sg_torch_conf *ret);

/* Reads "key:value,key:value" (NULL or "" for the defaults). Returns 0, or -EINVAL with one line in `error` (at least
   SG_TORCH_ERROR_TEXT bytes) that names the key, the value and the bound, leaving *ret alone. PyTorch's syntax holds: a
   number may be followed by anything, True and False are spelt so, and white space is ignored everywhere. */
int sg_torch_conf_parse(const char *text, struct sg_torch_conf *ret, char *error);

/* PyTorch's settings out of segalloc's own options, for fixed segments under PyTorch's rules. A max_split_size below
   the size of large segments, which PyTorch refuses, becomes that size. */
void sg_torch_conf_from(const struct sg_conf *conf, struct sg_torch_conf *ret);

/* The size of the block for a request of `bytes` (at least 1): a multiple of 512, or of the roundup step (roundup.h). */
uint64_t sg_torch_round(const struct sg_torch_conf *conf, uint64_t bytes);

#endif
