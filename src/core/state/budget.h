/* How full a device is, and what follows from that: what counts as room, and how many pages are moved instead of
   created.

   Nouns. The *budget* is how much may be reserved before pages move: without limit by default, else `reserve_slack`
   times the most that was ever allocated. *Room* is what is neither held nor in use by others. *Low pressure* means
   that a new page costs nobody anything. `should` is how many bytes are better taken from elsewhere, `must` how many
   cannot be had otherwise.

   Why pages do not move early by default: most moves turn out needless, and each leaves parts of pages. Why two
   numbers: a plan may create what it should have moved, if nothing can be moved. It cannot do so for what it must
   move. Limits: low pressure is asked at 80 % of the device and of the limit, SG_ROOMY_PERCENT.

   For example, 24,576 MiB may be held, 24,400 are, and a block needs 300 MiB of pages. `must` and `should` are 124
   MiB, and the other 176 are created. Suppose that the driver has refused a page before, at 24,500 MiB held. Then
   `should` is 200, since creating more would likely fail again. `must` stays 124, for others may have given memory
   back since. Once a plan has failed by that (`refused`), it is 200 too. */
#ifndef SG_CORE_STATE_BUDGET_H
#define SG_CORE_STATE_BUDGET_H

#include "core/state/device.h"

/* True if less than SG_ROOMY_PERCENT of `all` is used. 80 of 100 are 4 of 5, which are shorter to multiply by. */
static inline bool sg_is_roomy(uint64_t used, uint64_t all)
{
    enum { WHOLE = 100, COMMON = 20 };
    _Static_assert(SG_ROOMY_PERCENT % COMMON == 0, "a common divisor of both");
    return used * (WHOLE / COMMON) < all * (SG_ROOMY_PERCENT / COMMON);
}

/* True if `more` bytes of new pages may be had without a thought of moving others instead. On the way of every
   allocation above 64 KiB. */
static inline bool sg_device_is_low_pressure_locked(const struct sg_device *device, uint64_t more) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t held = device->accounts.usage.reserved.now + more;
    return device->core->conf.reserve_slack == 0 &&
           sg_is_roomy(held + device->room.outside_bytes, device->total_bytes) &&
           sg_is_roomy(held, device->capacity_bytes);
}

/* True if memory is plentiful even with a block of `more` bytes: less than 80 % of what may be held would be in use. For
   example, on a card of 24 GiB 19 GiB are allocated, and others use 1 GiB: 19 of 19.2 are in use, and 18.4 may be. */
static inline bool sg_device_is_plentiful_locked(const struct sg_device *device, uint64_t more) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_usage *usage = &device->accounts.usage;
    uint64_t used = usage->allocated.now + usage->pending.now + more;
    return sg_is_roomy(used + device->room.outside_bytes, device->total_bytes) &&
           sg_is_roomy(used, device->capacity_bytes);
}

/* Bytes of the device that a block for overflow may take once `idle` bytes are given back. Bounds are the limit, what others leave,
   and what the driver has refused last. A spare (SG_OVERFLOW_SPARE) is left to blocks that never lie elsewhere. */
uint64_t sg_device_spared_room_locked(const struct sg_device *device, uint64_t idle) SG_REQUIRES(lock);

/* The most bytes that have ever been allocated. A reader who lets peaks begin again does not change it. */
uint64_t sg_device_allocated_peak_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Bytes of new pages that should, and that must, be taken from elsewhere instead. */
struct sg_wanted {
    uint64_t should, must;
};
/* Says how many of `more` bytes of new pages, made for a block of `block_bytes`, are better moved. `refused`: the
   amount that was held when the driver refused last is as hard a limit as ours. */
struct sg_wanted sg_device_moves_wanted_locked(const struct sg_device *device, uint64_t more, uint64_t block_bytes,
    bool refused) SG_REQUIRES(lock);

#endif
