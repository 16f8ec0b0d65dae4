/* Memory of devices that this process holds by calls that the core does not serve, by category. What the driver gives
   for good is booked call by call. What pools and graphs hold the driver is asked for.

   An example. cuMemCreate of 2 GiB, cuMemMap, cuMemRelease: 2 GiB are held until cuMemUnmap. */
#ifndef SG_HELD_OUTSIDE_H
#define SG_HELD_OUTSIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "base/outside.h"

/* Writes what the process is known to hold of a device. Of managed memory that is all that was asked for, wherever its
   pages are. SEGALLOC_OUTSIDE_OTHER is left as it is: nobody here knows. Asks the driver; no lock of this layer is held.
   *ret_passed: what launches of graphs held besides since the last call, and gave back; NULL: the next call has it. */
void sg_held_outside(int device, struct sg_outside *ret, uint64_t *ret_passed);

/* All functions below: any thread, no lock held. Without host memory for the book an entry is left out. */

/* `id`, an address or a handle, holds `bytes` of a device, until sg_outside_given(). */
void sg_outside_taken(enum segalloc_outside what, uint64_t id, int device, uint64_t bytes);
/* Of the current context's device. */
void sg_outside_taken_here(enum segalloc_outside what, uint64_t id, uint64_t bytes);
/* False: it is not in the book. */
bool sg_outside_given(enum segalloc_outside what, uint64_t id);

/* Physical memory: its handle was mapped, or a range of mappings taken away. It is held until its handle is released
   and its last mapping is gone. */
void sg_outside_mapped(CUdeviceptr address, size_t bytes, uint64_t handle);
void sg_outside_unmapped(CUdeviceptr address, size_t bytes);

/* A pool that the program has made, and its end. Each device's own needs no word. */
void sg_outside_pool(CUmemoryPool pool, int device);
void sg_outside_pool_gone(CUmemoryPool pool);

/* Pools or graphs have given memory out: from here on the driver is asked. */
void sg_outside_use_pools(void);
bool sg_outside_uses_pools(void);

/* Around a launch of a graph, whose nodes may take memory and give it back: the driver's mark of the most that graphs held
   begins anew. What the program asks of that mark is answered from what was before, too. */
void sg_outside_launch_begins(void);
void sg_outside_launch_ended(void);
uint64_t sg_outside_graphs_most(CUdevice device, CUgraphMem_attribute attribute, uint64_t since);
void sg_outside_graphs_most_reset(CUdevice device, CUgraphMem_attribute attribute);

/* Waits for the work of a context (NULL: the current one), at which pools give back what was freed beyond their thresholds. False: there are no
   pools, or a capture forbids it. For a device that has run out. */
bool sg_outside_waited_for_pools(CUcontext context);

/* Bytes of the current context's device that anybody uses; 0: not known, or the thread is inside the library. For calls whose memory nobody states: the
   difference of before and after is theirs. */
uint64_t sg_outside_used(void);
void sg_outside_measured(enum segalloc_outside what, uint64_t before, uint64_t after);

/* True if anything was ever booked: waits may then have given memory of pools back. No lock. */
extern atomic_bool sg_outside_any;

#endif
