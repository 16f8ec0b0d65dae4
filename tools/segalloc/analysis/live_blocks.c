#include "analysis/live_blocks.h"

#include <errno.h>
#include <stdlib.h>

#include "trace/growing_array.h"

enum { GROUPS_MOST = 1 << 17 };

int sg_live_blocks_take(struct sg_live_blocks *live, const struct sg_walk_event *event, const struct sg_live_key *key,
    uint32_t *ret_group)
{
    struct sg_live *device = &live->device[event->device];
    if (!device->group && !sg_live_init(device, GROUPS_MOST))
        return -ENOMEM;
    if (sg_growing_array((void **)&live->block, &live->blocks, &live->room, event->block, sizeof *live->block))
        return -ENOMEM;
    struct sg_live_block *block = &live->block[event->block];
    if (event->kind == SG_WALK_ALLOC) {
        block->group = sg_live_add(device, key, event->size);
        block->birth = device->allocs;
    } else {
        sg_live_remove(device, block->group, event->size, block->birth);
    }
    *ret_group = block->group;
    return 0;
}

void sg_live_blocks_free(struct sg_live_blocks *live)
{
    for (uint32_t i = 0; i < SG_DICTIONARY_DEVICES; i++)
        if (live->device[i].group)
            sg_live_fini(&live->device[i]);
    free(live->block);
    *live = (struct sg_live_blocks){0};
}
