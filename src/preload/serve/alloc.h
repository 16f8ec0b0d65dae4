/* Allocations, for all interfaces.

   How. The core is asked first. Where it has nothing, the ladder of sg_memory_not_served() goes on, the cheapest step
   first. Its steps: pages of a failed trial, blocks of ended graphs, blocks that captures hold back, pools, idle pages
   of all devices, other processes. Then the driver is asked for what the core could not make, unless a limit of the
   user's forbids it. An allocation that nobody serves is reported (report/refusals.h).

   For example, 300 MiB are asked for on a card of 24 GiB with 200 MiB free for the driver. The core has 80 MiB idle in pages
   and can't make 300. The process freed 256 MiB in a capture that is active: that is waited for, 20 s at most (`wait_limit`).
   The capture ends after 20 ms, the 256 MiB are freed, and the core is asked again and serves. Had no step helped, the
   driver would be asked for 300 MiB, would refuse, and CUDA_ERROR_OUT_OF_MEMORY would go back with a report. */
#ifndef SG_ALLOC_H
#define SG_ALLOC_H

#include <stddef.h>

#include "core/core.h"
#include "track/request.h"

/* All functions: between sg_enter() and sg_leave(), with no lock of ours; sizes in bytes. */

/* cuMemAlloc on the current context's device; what we can't serve is asked of the driver. */
CUresult sg_memory_alloc(struct sg_core *core, size_t bytes, const struct sg_request *request, CUdeviceptr *ret);

/* An allocation for a module that needs the driver's own memory. The driver is asked as the program asked, and once
   more where idle memory of ours makes room. */
CUresult sg_memory_passthrough(struct sg_core *core, size_t bytes, CUdeviceptr *ret);

/* Goes on where the core has answered `result`, an error. Others are asked for memory, then the driver; an
   allocation that nobody serves is reported. `ends`: sg_captures_ends() before the core was asked. Returns the
   program's answer. */
CUresult sg_memory_not_served(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, unsigned ends,
    CUresult result, CUdeviceptr *ret);

#endif
