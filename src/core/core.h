/* The allocator, as the layers above see it.

   Nouns. A *core* serves every device of a process. A *block* is memory that the program owns. A *page* is physical
   memory that is mapped somewhere. *Idle* pages are free as a whole. *Pending* memory is freed, and may still be in
   use by the GPU. A *slot* is the index of a followed stream. *Fixed segments* are memory of cuMemAlloc that never
   moves.

   Why no globals, clock or environment: a replay runs the same core on a trace and must decide the same. So driver,
   configuration, observer and a clock for measuring come with sg_core_create(). A decision depends on these and on
   the order of calls alone.

   How errors go: functions that stand for driver calls return CUresult. It is exactly what the driver would have
   returned, and outputs stay untouched on failure. CUDA_ERROR_NOT_SUPPORTED means that the driver should serve the
   call itself.

   Locks: state/locks.h has those of a device. The caller of any function here holds none of them. No driver call is
   made while `lock` is held. Limits: SG_DEVICES_MAX (64) devices.

   For example, a program asks for 1,000 bytes on a card of 24 GiB. sg_core_malloc() makes the device ready, and finds
   no memory. It reserves 3 GiB of addresses for small blocks at 0x7f0000400000, and maps one page of 2 MiB there. It
   returns that address. The next 1,000 bytes are at 0x7f0000400400, and no driver call is made. sg_core_trim() after
   both frees gives the page back: the 3 GiB of addresses stay. */
#ifndef SG_CORE_H
#define SG_CORE_H

#include "core/contexts.h"
#include "core/core_types.h"
#include "core/free.h"
#include "core/capacity.h"
#include "core/outside_memory.h"
#include "core/pause.h"
#include "core/space/page_size.h"
#include "core/streams/followed_streams.h"
#include "core/tags.h"

/* Creates the allocator; nothing is asked of the driver yet. NULL: no host memory. The configuration and the
   callbacks are copied. The driver's table and the replay must outlive the core. */
struct sg_core *sg_core_create(const struct sg_core_params *params);

/* Gives everything back to the driver and frees the host memory. For tools and tests: a process under LD_PRELOAD
   never calls it. Nobody may be using the core. */
void sg_core_destroy(struct sg_core *core);

/* Allocates `bytes` on `device`, as cuMemAlloc does, for the caller that `tag` describes. The current context must
   belong to the device. *ret is a multiple of 512 bytes. Zero bytes: CUDA_ERROR_INVALID_VALUE.
   CUDA_ERROR_OUT_OF_MEMORY: the shortage is noted (inspect/core_state.h). CUDA_ERROR_NOT_SUPPORTED: the caller should
   pass the request on to the driver, and then call sg_core_passthrough(). It may call the driver and wait; most calls
   do neither. */
CUresult sg_core_malloc(struct sg_core *core, int device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret);

/* True if an address lies inside a range of ours, in use or not. Callable at any time, also in a forked child: ranges
   are looked up without a lock. With fixed segments it takes `lock`. */
bool sg_core_owns(const struct sg_core *core, CUdeviceptr address);
/* Describes the live block that holds `address`. CUDA_ERROR_INVALID_VALUE: no block does. CUDA_ERROR_NOT_FOUND: the
   address is not ours. */
CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret);
/* Gives idle pages back to the driver until at most `keep` bytes are reserved beyond what is allocated. It waits for
   pending frees first. Returns the bytes given back. */
size_t sg_core_trim(struct sg_core *core, int device, size_t keep);

/* Gives a device's idle pages on `neighbour` back (remap/overflow.h), because that one lacks memory itself. It
   waits for nothing. Returns the bytes given back. return_from(): those of all devices. */
size_t sg_core_return_far(struct sg_core *core, int device, int neighbour);
size_t sg_core_return_from(struct sg_core *core, int neighbour);

/* Asks about pending frees and makes those free whose work is complete. No wait. */
void sg_core_poll(struct sg_core *core, int device);

/* Notes an allocation of `bytes` that the driver served at `address`, for the report's share of what was served. */
void sg_core_passthrough(struct sg_core *core, int device, CUdeviceptr address, size_t bytes);

/* Counts questions of the program how much of `device` is free. */
void sg_core_asked(struct sg_core *core, int device, unsigned times);

/* Pins the pages behind [address, address + bytes): they neither move nor go back any more. Other addresses are left
   alone. */
void sg_core_pin(struct sg_core *core, CUdeviceptr address, size_t bytes);

/* Pins every page that there is, on all devices. Returns true if there is any. */
bool sg_core_pin_all(struct sg_core *core);

/* From here on nothing is asked of the driver: frees succeed and do nothing, allocations answer
   CUDA_ERROR_NOT_SUPPORTED. For forked children, after the driver has gone or returned a sticky error. Takes no
   lock. */
void sg_core_disable(struct sg_core *core);

/* The sticky error has gone with its context. Blocks of other contexts that were freed meanwhile stay allocated. No
   lock. */
void sg_core_enable(struct sg_core *core);

/* Takes, or gives back, around fork() the locks that are held for a moment only; in the child all are made anew.
   `setup` is none of these: the driver may hold a lock of its own around a fork, for which the holder of `setup`
   waits. Returns a bit for each device whose lock was taken, for the parent to give back. */
uint64_t sg_core_fork_prepare(struct sg_core *core);
void sg_core_fork_parent(struct sg_core *core, uint64_t devices);
void sg_core_fork_child(struct sg_core *core);

/* True if `setup` and the locks of sg_core_fork_prepare() come free within a second each. A thread that left a call
   of the core by a long jump out of a signal handler never releases the lock that it held. */
bool sg_core_is_free(struct sg_core *core);

/* The slot of a stream, found or made. 0: none is left, or the device does not serve memory by ranges. */
sg_slot sg_core_slot(struct sg_core *core, int device, const struct sg_stream_id *id);

/* Notes that the stream is about to be destroyed. A fence goes on it first, and the slot is given to another stream
   once that has passed. Calls the driver. */
void sg_core_slot_gone(struct sg_core *core, int device, sg_slot slot);

/* True if a page left an alias for the stream of `slot` since the last such call (remap/page_alias.h). Kernels that
   use the alias may still run when that stream's next kernel begins, if that is launched so as to begin early. The
   caller then prevents that. No lock. */
bool sg_core_take_aliased(struct sg_core *core, int device, sg_slot slot);

/* From here on `device` serves fixed segments (fixed_segments.h); with `whole`, each block in one of its own. Blocks
   that are allocated already stay where they are, and the driver must not give that memory out. Idle pages go back by
   sg_core_trim(), which callers use when memory has run out. False: no host memory, or a device that cannot be
   served; nothing has changed. */
bool sg_core_fix(struct sg_core *core, int device, bool whole);

/* All devices, those first used later too, serve fixed segments from here on, each block in one of its own. Legacy
   IPC can give such memory away. */
void sg_core_share(struct sg_core *core);

/* True if `device` serves fixed segments now and served regions before, or both (the option `contiguous`). Then
   sg_core_trim() may give back pages where there is no memory for a segment, and segments where there is none for pages. */
bool sg_core_left_pages(struct sg_core *core, int device);

/* True if `device` serves fixed segments now. */
bool sg_core_has_segments(struct sg_core *core, int device);

/* True if less than 80 % of `device` would be in use with a block of `bytes` more. A caller that could do with less asks
   before a modest request (sg_tag), so that the trace has nothing of one that is not made. Makes the device ready; takes
   `lock`. */
bool sg_core_is_plentiful(struct sg_core *core, int device, size_t bytes);

#endif
