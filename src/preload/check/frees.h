/* Frees as they are looked at: the canary is read, and the block is filled.

   A free goes one of three ways. In the order of a stream, without other users: that stream fills the block. With other
   users: each of them stamps the tail. Not in the order of a stream: a stream of ours waits for all work, then fills;
   the free of the core covers that stream, because it waits for all that was given to the context by then.

   For example, a block of 1,000 bytes has 1,536 with its tail (pattern.h). Stream 3, its own, is the only user. It reads
   the canary, bytes 1,000 to 1,127 and 1,408 to 1,535, and sets all 1,536 bytes. If stream 5 used the block too, stream 3 sets
   bytes 1,024 to 1,151 alone. Stream 5 then writes its stamp, bytes 1,162 and 1,163, and the free waits for it.

   A free that is refused. The core may say that a capture has begun, after the block was filled. The program has freed
   it, so its bytes are nobody's. The block goes back into the table, without a canary, and its free comes later. */
#ifndef SG_CHECK_FREES_H
#define SG_CHECK_FREES_H

#include <stdbool.h>
#include <stdint.h>

#include "check/shadow.h"
#include "core/core.h"

/* A block is about to be freed by the core, with this tag, which may be changed so that it covers what is done here.
   Between sg_enter() and sg_leave(), as all of these. The result belongs to sg_check_freed(), which says whether it was. */
struct sg_freed *sg_check_freeing(struct sg_core *core, CUdeviceptr address, struct sg_tag *tag);
void sg_check_freed(struct sg_freed *block, bool done);

/* A free was refused: no block of ours begins there. */
void sg_check_refused(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag);

/* Frees that were looked at, and bytes that were filled, so far. count(): one more of a device. */
void sg_check_count_free(struct sg_core *core, int device);
uint64_t sg_check_frees(void);
uint64_t sg_check_filled(void);

#endif
