/* Puts the result of a play together from what the allocator and the card have counted.

   A play may have two *parts*: up to an event, and the rest. Counters of the rest are differences. Its peak cannot be one,
   so the player notes the most that each device held after the first part.

   Example, reserved bytes of one device in GiB: the first part rises to 20, the rest falls to 12 and rises to 18.
     peak_reserved          20     of the whole, as the core counts it
     first.peak_reserved    20     the core's peak at the end of the first part
     rest.peak_reserved     18     the whole peak is not above the first one, so the noted one counts
   Had the rest risen to 22, the whole peak of 22 would have been its own. */
#ifndef SG_RESULTS_H
#define SG_RESULTS_H

#include "pytorch/caching_allocator.h"
#include "pytorch/ledger_device.h"
#include "player.h"

/* PyTorch's rules have an allocator for each device, and this is one with its card. */
struct sg_torch_device {
    struct sg_torch *torch; /* NULL: nothing was asked of the device */
    struct sg_ledger_device card;
};

/* Adds the counts of the devices to `result`. */
void sg_results_own(struct sg_core *core, int devices, struct sg_play_result *result);
void sg_results_torch(const struct sg_torch_device devices[SG_DEVICES_MAX], struct sg_play_result *result);

/* Notes the figures of the first part in `result`, from `so_far`, which is the whole result at that moment. */
void sg_results_take_first(const struct sg_play_result *so_far, struct sg_play_result *result);

/* Makes the figures of the rest, of a complete result. `peak`: the most that each device held after the first part, as
   seen after each record. */
void sg_results_end_rest(struct sg_play_result *result, const uint64_t peak[SG_DEVICES_MAX]);

#endif
