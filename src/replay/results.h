/* Puts the result of a play together from what the allocator and the card have counted. */
#ifndef SG_RESULTS_H
#define SG_RESULTS_H

#include "pytorch/caching_allocator.h"
#include "pytorch/ledger_device.h"
#include "player.h"

/* PyTorch has an allocator a device. */
struct sg_torch_device {
    struct sg_torch *torch; /* NULL: nothing was asked of the device */
    struct sg_ledger_device card;
};

/* Adds the counts of the devices to `result`. */
void sg_results_own(struct sg_core *core, int devices, struct sg_play_result *result);
void sg_results_torch(const struct sg_torch_device devices[SG_DEVICES_MAX], struct sg_play_result *result);

/* Notes `so_far`, the result at the end of the first part. */
void sg_results_take_first(const struct sg_play_result *so_far, struct sg_play_result *result);

/* Makes the figures of the rest, of a complete result. `peak`: the most that each device held after the first part, as
   seen after each record. */
void sg_results_end_rest(struct sg_play_result *result, const uint64_t peak[SG_DEVICES_MAX]);

#endif
