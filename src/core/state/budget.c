/* All in bytes. `allowed` is the budget, a wish; `most` is a limit. A refusal of the driver is between the two. It
   moves `should`, and becomes a limit once a plan has failed by it. */
#include "core/state/budget.h"

uint64_t sg_device_allocated_peak_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t peak = device->accounts.usage.allocated.peak,
             before = device->accounts.peak_before[SG_PEAKS_OF_ALL][SG_STAT_allocated_bytes];
    return peak > before ? peak : before;
}

/* The most bytes that were ever allocated, or will be with `more`: a block that is the new peak may be paid for by
   it. */
static uint64_t allocated_at_most_locked(const struct sg_device *device, uint64_t more) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t now = device->accounts.usage.allocated.now + more, most = sg_device_allocated_peak_locked(device);
    return now > most ? now : most;
}

/* The budget, in bytes. With reserve_slack:auto there is none: an early move is often needless, and leaves parts of
   pages. */
static uint64_t budget_bytes_locked(const struct sg_device *device, uint64_t block_bytes) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    double slack = device->core->conf.reserve_slack;
    return slack == 0 ? UINT64_MAX : (uint64_t)(slack * (double)allocated_at_most_locked(device, block_bytes));
}

struct sg_wanted sg_device_moves_wanted_locked(const struct sg_device *device, uint64_t more, uint64_t block_bytes,
    bool refused)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t held = sg_device_held_locked(device) + more, allowed = budget_bytes_locked(device, block_bytes);
    uint64_t most = refused && device->room.refused_at && device->room.refused_at < device->capacity_bytes
                        ? device->room.refused_at
                        : device->capacity_bytes;
    /* A page beyond the last refusal is likely to be refused again, so it is better moved, though not beyond what is
       asked. */
    uint64_t should = held > allowed ? held - allowed : 0, must = held > most ? held - most : 0;
    if (device->room.refused_at && held > device->room.refused_at && held - device->room.refused_at > should)
        should = held - device->room.refused_at;
    should = should > must ? should : must;
    return (struct sg_wanted){should < more ? should : more, must};
}

uint64_t sg_device_spared_room_locked(const struct sg_device *device, uint64_t idle)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t most = device->capacity_bytes, refused = device->room.refused_at, outside = device->room.outside_bytes;
    uint64_t beside = device->total_bytes > outside ? device->total_bytes - outside : 0;
    uint64_t stays = sg_device_held_locked(device) - idle + device->capacity_bytes / SG_OVERFLOW_SPARE;
    most = beside < most ? beside : most;
    most = refused && refused < most ? refused : most;
    return most > stays ? most - stays : 0;
}
