/* The allocator, as the layers above see it.

   A `struct sg_core` serves every device of a process. It has no globals, clock or environment. Driver, configuration,
   observer and a clock for measuring come with sg_core_create(). device.h has the locks of a device. The caller holds
   none of them. The core makes no driver call while it holds `lock`.

   Functions that stand for driver calls return CUresult: exactly what the driver would have returned, with outputs
   untouched on failure. */
#ifndef SG_CORE_H
#define SG_CORE_H

#include "core/contexts.h"
#include "core/core_types.h"
#include "core/free.h"
#include "core/capacity.h"
#include "core/outside_memory.h"
#include "core/space/page_size.h"
#include "core/streams/followed_streams.h"

/* Creates the allocator; nothing is asked of the driver yet. NULL when there is no host memory. */
struct sg_core *sg_core_create(const struct sg_core_params *params);

/* Gives everything back to the driver and frees the host memory. For tools and tests: a process under LD_PRELOAD
   never calls it. Nobody may be using the core. */
void sg_core_destroy(struct sg_core *core);

/* cuMemAlloc on `device` for the caller described by `tag`. The current context must belong to the device. Zero
   bytes: CUDA_ERROR_INVALID_VALUE. CUDA_ERROR_NOT_SUPPORTED: the caller should pass the request on to the driver
   (the device can't be served by us) and then call sg_core_passthrough(). */
CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret);

/* Whether an address lies inside a range of ours. Lock-free, callable at any time, also in a forked child. */
bool sg_core_owns(const struct sg_core *core, CUdeviceptr address);
/* The live block that holds `address`; CUDA_ERROR_INVALID_VALUE if none does, CUDA_ERROR_NOT_FOUND if not ours. */
CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret);
/* Gives idle pages back to the driver until at most `keep` bytes are reserved beyond what is allocated. Returns the
   bytes given back. */
size_t sg_core_trim(struct sg_core *core, int device, size_t keep);

/* Asks about pending frees and makes those free whose work is complete. No wait. */
void sg_core_poll(struct sg_core *core, int device);

/* Notes an allocation that the driver served, for the report's served share. */
void sg_core_passthrough(struct sg_core *core, int device, CUdeviceptr address, size_t bytes);

/* Counts an allocation on `device` that was refused and will not be made good: the core counts refusals only, since
   what a program does about one is not known then. */
void sg_core_failed(struct sg_core *core, int device);

/* Counts questions of the program how much of `device` is free. */
void sg_core_asked(struct sg_core *core, int device, unsigned times);

/* Notes in the trace what became of the calling thread's refused allocation, where no allocation shows it. */
void sg_core_settled(struct sg_core *core, int device, enum segalloc_settled how, size_t bytes);

/* The page or pages behind [address, address + bytes) may not move any more. */
void sg_core_pin(struct sg_core *core, CUdeviceptr address, size_t bytes);

/* Pins every page that there is. Returns whether there is any. */
bool sg_core_pin_all(struct sg_core *core);

/* From here on nothing is asked of the driver: frees succeed and do nothing, allocations answer
   CUDA_ERROR_NOT_SUPPORTED. For forked children, after the driver has gone or returned a sticky error. Takes no
   lock. */
void sg_core_disable(struct sg_core *core);

/* The sticky error has gone with its context. What was freed meanwhile, of other contexts, stays allocated. No lock. */
void sg_core_enable(struct sg_core *core);

/* Takes, or gives back, around fork() the locks that are held for a moment only; in the child all are made anew. `setup`
   is none of these: the driver may hold a lock of its own around a fork, for which the holder of `setup` waits. Returns
   a bit for each device whose lock was taken, for the parent to give back. */
uint64_t sg_core_fork_prepare(struct sg_core *core);
void sg_core_fork_parent(struct sg_core *core, uint64_t devices);
void sg_core_fork_child(struct sg_core *core);

/* Whether `setup` and the locks of sg_core_fork_prepare() are to be had within a second each. A thread that left a call of the
   core by a long jump out of a signal handler never releases the lock that it held. */
bool sg_core_is_free(struct sg_core *core);

/* The slot of a stream, found or made. 0: there is none left, or the device does not serve memory by ranges. */
sg_slot sg_core_slot(struct sg_core *core, int device, const struct sg_stream_id *id);

/* The stream is about to be destroyed. A fence goes on it first, and the slot is given to another stream once that
   has passed. Calls the driver; no lock may be held. */
void sg_core_slot_gone(struct sg_core *core, int device, sg_slot slot);

/* Whether a page got a second address for the stream of `slot` since the last such call. Users of the first address
   may still be running when that stream's next kernel begins, if that is launched so as to begin early. No lock. */
bool sg_core_take_aliased(struct sg_core *core, int device, sg_slot slot);

/* From here on `device` serves fixed segments (fixed_segments.h); with `whole`, each block in one of its own. What is
   allocated already stays where it is, and the driver must not give that memory out. Idle pages go back by
   sg_core_trim(), which callers use when memory has run out. False: no host memory, or a device that cannot be
   served; nothing has changed. */
bool sg_core_fix(struct sg_core *core, int device, bool whole);

/* All devices, those first used later too, serve fixed segments from here on, each block in one of its own. Legacy
   IPC can give such memory away. */
void sg_core_share(struct sg_core *core);

/* Whether `device` serves fixed segments now and served regions before. If so, sg_core_trim() may give back what
   those have left when there is no memory for a segment. */
bool sg_core_left_pages(struct sg_core *core, int device);

#endif
