/* The slow half of an allocation: the growing ladder of docs/design.md.

   It takes complete memory, then new pages within the budget, then idle pages from elsewhere. Only once all that has failed
   does it wait for pending memory.

   For example, 300 MiB on a card of 24 GiB of which 23.9 are held, in pages of 2 MiB, 400 MiB of them idle. The block needs
   150 pages. 50 may be created before the limit, so a plan takes 100 idle ones, unmaps them, and maps all 150 at one place.
   Does the driver refuse after 30, the plan goes on with 20 idle ones more. */
#ifndef SG_CORE_GROW_H
#define SG_CORE_GROW_H

#include "core/search/take.h"

/* The slow half of an allocation: pages are mapped, moved or waited for. Takes `grow`. */
CUresult sg_grow(struct sg_device *device, struct sg_want want, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret);

/* Notes and reports an allocation that cannot be had; returns CUDA_ERROR_OUT_OF_MEMORY. No lock held. */
CUresult sg_device_ran_out(struct sg_device *device, size_t bytes, const struct sg_tag *tag);

#endif
