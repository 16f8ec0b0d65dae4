/* The blocks that the program has, by address, and what was asked for with each.

   A block has one reference while it is in this table. Whoever takes it out has that reference, and is the only one that
   frees it. For example, two threads free one address at once: one of them takes the block, and the other finds none. */
#ifndef SG_CHECK_LIVE_H
#define SG_CHECK_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/shadow.h"
#include "core/core.h"

/* Makes the table; once, before there are blocks. False: no host memory. */
bool sg_live_begin(void);

/* Bytes of the tails of live blocks of a device. */
uint64_t sg_live_tails(int device);

/* Bytes that the program asked for, where the core gave `room`, for a block that is live. */
size_t sg_live_bytes(CUdeviceptr base, size_t room);

/* A block that was freed within a capture serves there again, for `bytes`. */
void sg_live_reused(CUdeviceptr address, size_t bytes);

/* Takes a block out of the table: whoever frees it has it alone. NULL: it is not there, or another thread has taken it.
   The table's reference is the caller's then. */
struct sg_freed *sg_live_take(CUdeviceptr address);

/* A block is handed out at this address: what was there before has gone with its context. */
void sg_live_forget(CUdeviceptr address);

/* Puts a block into the table, with the caller's reference. Without host memory it is forgotten. */
void sg_live_put(struct sg_freed *block);

/* The live block that begins there, or NULL; under SG_LOCK_CHECK. */
struct sg_freed *sg_live_find(CUdeviceptr base);

/* Gives a reference back. */
void sg_live_drop(struct sg_freed *block);

/* The block that is, or was, at an address, with a reference; NULL: none is known. *ret_live: it is. *ret_gone:
   it was the program's until its context ended. */
struct sg_freed *sg_live_at(struct sg_core *core, CUdeviceptr address, bool *ret_live, bool *ret_gone);

/* From the first row of a block's canary, behind what was asked for, to the second one, at the end of its room. */
uint64_t sg_canary_pitch(const struct sg_freed *block);

#endif
