/* How full a device is, and what follows from that: what counts as room, and how many pages are moved instead of created.

   Nouns. *Room* is what is neither held nor in use by others. *Low pressure* means that a new page costs nobody anything.
   `should` is how many bytes are better taken from elsewhere; `must` is how many cannot be had otherwise.

   For example, a limit of 20 GiB with 19.9 held, and a block that needs 0.3 GiB of pages. `must` is 0.2 GiB. Has the driver
   refused at 19.8 held, should is 0.3 and must stays 0.2, until a plan failed by that (`refused`). */
#ifndef SG_CORE_STATE_BUDGET_H
#define SG_CORE_STATE_BUDGET_H

#include "core/state/device.h"

/* Whether `more` bytes of new pages may be had without a thought of moving others instead. On the way of every
   allocation. */
static inline bool sg_device_is_low_pressure_locked(const struct sg_device *device, uint64_t more) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    enum { WHOLE = 100 };
    uint64_t held = device->accounts.usage.reserved.now + more;
    return device->core->conf.reserve_slack == 0 &&
           (held + device->room.outside_bytes) * WHOLE < device->total_bytes * SG_ROOMY_PERCENT &&
           held * WHOLE < device->capacity_bytes * SG_ROOMY_PERCENT;
}

/* The most bytes that have ever been allocated, whoever lets peaks begin again. */
uint64_t sg_device_allocated_peak_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* How many of `more` bytes of new pages, made for a block of `block_bytes`, should be taken from elsewhere instead, and
   how many must be. `refused`: what was held when the driver refused last is as hard a limit as ours. Under the
   lock. */
struct sg_wanted {
    uint64_t should, must;
};
struct sg_wanted sg_device_moves_wanted_locked(const struct sg_device *device, uint64_t more, uint64_t block_bytes,
    bool refused) SG_REQUIRES(lock);

#endif
