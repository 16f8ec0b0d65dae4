/* The live blocks of a trace, in groups, while a walk goes on. The groups are those of base/live_groups.h, for each device. Each block
   has the group that it counts in.

   Every list of live blocks is made of these: a moment of a trace, the key frames of a page, a full card. A
   caller that knows more of a group keeps an array of its own, by the group's number.

   Example: site 7 of device 0 allocates 300 KiB, which is block 4. sg_live_blocks_take() makes group 1 of device 0 for the key (site 7,
   class 19). Block 4 counts in it until its free. Then the call gives group 1 again, and nothing is left in it. */
#ifndef SG_LIVE_BLOCKS_H
#define SG_LIVE_BLOCKS_H

#include <stdint.h>

#include "analysis/walk.h"
#include "base/live_groups.h"

/* All zero: nothing is alive. */
struct sg_live_blocks {
    struct sg_live device[SG_DICTIONARY_DEVICES]; /* made where it is used */
    struct sg_live_block {
        uint64_t birth;
        uint32_t group;
    } * block; /* by number */
    uint32_t blocks, room;
};

/* Counts an allocation, with this key, or a free. *ret_group: the number of the block's group among those of its device; 0 is the
   group of what has found no room. 0 or -ENOMEM. */
int sg_live_blocks_take(struct sg_live_blocks *live, const struct sg_walk_event *event, const struct sg_live_key *key,
    uint32_t *ret_group);
void sg_live_blocks_free(struct sg_live_blocks *live);

#endif
