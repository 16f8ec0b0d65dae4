/* The clocks of a device's streams (order/stream_clock.h), under its lock.

   Nouns. The *time* of a device is a counter, and a *tick* its next number. To *read* a clock is to ask for a time
   that is later than all work which its stream was given.

   These forward to order/, which knows no lock. They assert the device's.

   For example, sg_clocks_tick_locked() at time 41 returns 42: what is freed now comes after all that its stream was
   given before 42. */
#ifndef SG_CORE_STATE_CLOCKS_H
#define SG_CORE_STATE_CLOCKS_H

#include "core/state/device.h"

/* sg_clocks_tick(), sg_clocks_read() and sg_clocks_freed() of order/stream_clock.h, under `lock`. */
static inline uint64_t sg_clocks_tick_locked(struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_clocks_tick(&device->clocks);
}
static inline uint64_t sg_clocks_read_locked(struct sg_device *device, uint64_t slots) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_clocks_read(&device->clocks, slots);
}
static inline uint64_t sg_clocks_freed_locked(struct sg_device *device, sg_slot own, uint64_t others, bool missed_calls,
    bool *ret_was_used) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_clocks_freed(&device->clocks, own, others, missed_calls, /* replayed */ device->core->replay,
        ret_was_used);
}
/* Notes that memory was freed after work of these slots, so a fence is worth recording there. Bit 0 is for all work
   of all contexts. The bit of a slot without a stream is dropped: nothing would ever clear it. */
static inline void sg_clocks_need_fence_locked(struct sg_device *device, uint64_t slots) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    device->clocks.needs_fence |= slots & (device->clocks.alive | 1);
}

#endif
