/* Memory of devices that this process holds by calls that the core does not serve, by category.

   Nouns. The *book* has what the driver gave until it is given back, a row for each. *Pools* and *graphs* give memory
   out and take it back by the order of streams, so the driver is asked about those.

   Why. The report of a failed allocation, the trace and the limit must account for the whole device. NVML says how much
   is used, not by which calls.

   How. A row is counted by handle and mapping: physical memory is held until its handle is released and its last
   mapping is gone.

   Limits. 64 pools of the program's own, and 64 files that lead to physical memory. No call tells that a file is closed. So
   where its number is then another process's memory, that is taken for the old one. Without host memory for the
   book an entry is left out. A signal handler that interrupts the book's holder notes nothing.

   For example, cuMemCreate of 2 GiB makes a row with 1 reference, cuMemMap makes it 2, cuMemRelease 1. All of 2 GiB are
   held until cuMemUnmap. */
#ifndef SG_HELD_OUTSIDE_H
#define SG_HELD_OUTSIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "base/outside.h"

/* Writes what the process is known to hold of a device. Managed memory counts as it was asked for, wherever its pages
   are. SEGALLOC_OUTSIDE_OTHER is left as it is: nobody here knows. Asks the driver; no lock of this layer is held.
   *ret_most: the same at the moment since the last such call when it was most, all zeros: it is most now. NULL: the
   next call has it.

   An example. A signal handler gets 2 GiB by cuMemCreate and gives them back, where nothing can be noted: the next call has
   2 GiB in *ret_most, and nothing in *ret. */
void sg_held_outside(int device, struct sg_outside *ret, struct sg_outside *ret_most);

/* Bits of devices, bit 0 for device 0. */
static inline uint64_t sg_outside_bit(int device)
{
    return device >= 0 && device < 64 ? UINT64_C(1) << device : 0;
}

/* Those of which anything is booked, or that have pools or graphs which have given memory out. */
uint64_t sg_outside_devices(void);

/* All functions below: any thread, no lock held. Without host memory for the book an entry is left out. */

/* `id`, an address or a handle, holds `bytes` of a device, until sg_outside_given(). */
void sg_outside_taken(enum segalloc_outside what, uint64_t id, int device, uint64_t bytes);
/* Memory of the current context's device. */
void sg_outside_taken_here(enum segalloc_outside what, uint64_t id, uint64_t bytes);
/* The device of which it was; -1: it is not in the book. */
int sg_outside_given(enum segalloc_outside what, uint64_t id);

/* Physical memory: its handle was mapped, or a range of mappings taken away. It is held until its handle is released
   and its last mapping is gone. The latter returns the devices that have memory back. */
void sg_outside_mapped(CUdeviceptr address, size_t bytes, uint64_t handle);
uint64_t sg_outside_unmapped(CUdeviceptr address, size_t bytes);

/* The device of a mapping that begins at `address`; -1: it is not in the book. */
int sg_outside_mapped_on(CUdeviceptr address);

/* One more handle leads to physical memory. A file of it, exported in this process, was imported, or the handle of what is
   mapped at `address` was asked for. sg_outside_imported() returns the device; -1: the file was exported elsewhere. Memory
   of another process is that one's to count. */
void sg_outside_exported(uint64_t handle, int file);
int sg_outside_imported(uint64_t handle, int file);
void sg_outside_retained(uint64_t handle, CUdeviceptr address);

/* A pool that the program has made, and its end. Each device's own needs no word. */
void sg_outside_pool(CUmemoryPool pool, int device);
void sg_outside_pool_gone(CUmemoryPool pool);

/* The device of a pool; -1: it is not known. */
int sg_outside_pool_device(CUmemoryPool pool);

/* Pools or graphs of these devices have given memory out, or will: from here on the driver is asked. 0: of the current
   context's. */
void sg_outside_use_pools(uint64_t devices);
bool sg_outside_uses_pools(void);
uint64_t sg_outside_pool_devices(void);

/* Around a launch of a graph, whose nodes may take memory and give it back. The driver's mark of the most that graphs
   held begins anew. A question of the program about that mark is answered from what was before, too. */
void sg_outside_launch_begins(void);
void sg_outside_launch_ended(void);
uint64_t sg_outside_graphs_most(CUdevice device, CUgraphMem_attribute attribute, uint64_t since);
void sg_outside_graphs_most_reset(CUdevice device, CUgraphMem_attribute attribute);

/* Waits for the work of a context (NULL: the current one, if there is any) and of the devices that have pools. Streams that
   free to pools are waited for too, since they may be of other devices. Pools then give back what was freed beyond their
   thresholds. While a capture is active only these streams are waited for (pool_streams.h). False: there are no pools, or
   nothing could be waited for. For a device that has run out. */
bool sg_outside_waited_for_pools(CUcontext context);

/* Bytes of the current context's device that anybody uses; 0: not known, or the thread is inside the library. For calls whose memory nobody states: the
   difference of before and after is theirs. */
uint64_t sg_outside_used(void);
void sg_outside_measured(enum segalloc_outside what, uint64_t before, uint64_t after);

/* True if anything was ever booked: waits may then have given memory of pools back. No lock. */
extern atomic_bool sg_outside_any;

/* Bytes of a device that guarded blocks have (check:guard): memory that the library takes by itself, by cuMemCreate. The second
   adds bytes, or with a negative number takes some away. No lock. */
uint64_t sg_outside_guarded(int device);
void sg_outside_add_guarded(int device, int64_t bytes);

#endif
