/* Overflow: pages of another device's memory, or of the host's, where the device has too few.

   Nouns. A *far* page is on another device, the *neighbour*, or in the host's memory. A *near* one is the
   device's. Kernels reach all at their addresses, far ones over the link. A block is *lacking* its size beyond
   idle pages and room.

   Why: whoever lacks 300 MiB at step 4,000 loses the run. Memory over a link costs bandwidth while that block
   lives, and nothing else. Nothing faults or moves by itself, as managed memory does.

   How: the block is allocated as any other, by a plan (plan.h), in a region of its own kind. Its place gets
   idle pages of the device first, and new ones until there may be no more. Idle far pages come next, and last
   new ones: the neighbour's as far as the option and its room go, then the host's. A spare of the device
   (SG_OVERFLOW_SPARE) is left alone, for blocks that are too small to lie elsewhere. Near pages are like all
   others, wherever they are. Far ones serve only here, and only blocks that nothing else could serve.

   Why idle far pages are kept: on a full card the next block needs them again, and making one costs more than
   moving it. They go back once all that is in use would find room on the device with a margin. Without the
   margin they do after a while without such blocks (overflow_is_over_locked()). A large free, a growth or a
   trim finds out.

   Limits. Only the option `overflow` allows it, and only the last question of a caller asks for it (`overflow`
   of struct sg_tag). Blocks of less than SG_OVERFLOW_LEAST never lie elsewhere, nor do those of a tag, whose
   pauses go by pages. No far page has an alias. The neighbour is one that reaches natively and has the most to
   spare (`neighbour` of struct sg_core_callbacks). It stays the same while the device has pages there. Where it
   runs out itself, sg_core_return_from() gives idle ones back. The trace has each decision,
   SEGALLOC_TURN_NEIGHBOUR, SEGALLOC_TURN_OVERFLOW, SEGALLOC_TURN_ELSEWHERE and SEGALLOC_TURN_RETURN, and the
   bytes of each block, SEGALLOC_RECORD_FAR.

   For example, a card of 24 GiB has 17.1 GiB in use, and 300 MiB idle in two pieces. 7 GiB are asked for, with
   overflow:host=4GiB. They lack 100 MiB, and the spare is 96 MiB. The place gets 204 MiB of the idle pages, 6.6
   GiB of new ones, and behind them 196 MiB of the host's. The block is freed, and 7 GiB are more than the
   margin of 3: the far pages go back at once. */
#ifndef SG_CORE_REMAP_OVERFLOW_H
#define SG_CORE_REMAP_OVERFLOW_H

#include "core/search/take.h"

/* True if overflow is to be tried for an allocation: the option and the caller say so, or the trace of a replay. */
bool sg_overflow_is_asked(const struct sg_device *device, const struct sg_tag *tag);

/* Sets `want` for one more attempt to allocate a block of `bytes`, which the ladder could not serve. False: it may not lie elsewhere, and why is noted for the shortage. */
bool sg_overflow_begin_growing(struct sg_device *device, size_t bytes, const struct sg_tag *tag, struct sg_want *want)
    SG_REQUIRES(grow);

/* Bytes of a block that lie elsewhere. */
struct sg_far_bytes {
    uint64_t peer, host;
};

/* Notes a block of the region for overflow that is about to be handed out. A record has its bytes elsewhere, which are
   returned. */
struct sg_far_bytes sg_overflow_note_locked(struct sg_device *device, uint32_t extent) SG_REQUIRES(lock);

/* Says in one line that a block of `bytes` has `far` bytes elsewhere, on `neighbour` or the host. No lock held. */
void sg_overflow_say(const struct sg_device *device, size_t bytes, struct sg_far_bytes far, int neighbour);

/* True if idle far pages may go back, as far as a look shows. */
bool sg_overflow_may_return_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Gives them back if they may. The second takes `grow`; both take `lock`. */
void sg_overflow_return_growing(struct sg_device *device) SG_REQUIRES(grow);
void sg_overflow_return(struct sg_device *device);

#endif
