/* Allocations as they are looked at: what was freed there is read back, and the canary is written.

   Parts. The shadow knows the memory of a block as parts of blocks that were freed there. Each is read on the stream that
   gets the memory, as the first work on it, so nobody waits. Memory that is for no stream may be used by any at once. It is
   read on a stream of ours then, and the host waits for these copies.

   For example, blocks of 4 KiB and 8 KiB were freed, one behind the other. A block of 6 KiB there has two parts: all of the
   first one, and the first 2 KiB of the second. */
#ifndef SG_CHECK_ALLOCATIONS_H
#define SG_CHECK_ALLOCATIONS_H

#include <stddef.h>

#include "core/core.h"
#include "track/request.h"

/* Bytes to ask the core for on a device, where the program asked for `bytes`: the tail with them. Not where that would take
   more than 1/256 of the device for tails in all, or where memory comes in segments and a tail would begin another 2 MiB.
   So a program that needs less than 99.6 % of a card gets it. sg_live_bytes() is the other way round.

   For example, 8 GiB have room for tails of 32 MiB: those of 65,536 blocks. */
size_t sg_check_room(struct sg_core *core, int device, size_t bytes);

/* A block was handed out, of `room` bytes for `bytes` asked for; before the program has it. */
void sg_check_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    CUdeviceptr address, size_t bytes, size_t room);

#endif
