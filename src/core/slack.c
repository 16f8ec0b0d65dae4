/* How full a device is, and what follows from that: what counts as room, and how much may be reserved before pages are
   moved instead of created. */
#include "device.h"

/* With reserve_slack:auto nothing is moved while less than LOOSE of the device is in use; from there the slack slides
   from SLACK_LOOSE to 1 at TIGHT. */
static const double LOOSE = 0.80, TIGHT = 0.95, SLACK_LOOSE = 1.10;

/* Crowds are kept apart once that share has been allocated at a time: what was placed before stays where it is. What
   that leaves idle elsewhere counts on cards of twice what a program needs, which never get there. */
static const double APART = 0.60;

/* From here on parts of pages count: before, what that leaves idle elsewhere is more than what it saves. */
static const double CROWDED = 0.90;

/* Tokens that are kept for moves without which new pages would be made: crowds stand apart as long as there are
   more. */
enum { TOKENS_KEPT = 1 << 12 };

/* How full the device would be, or what we may hold of it, with `more` bytes reserved: a share. */
static double fill_with(const struct sg_device *device, uint64_t more)
{
    double held = (double)(device->usage.reserved.now + more);
    double fill = (held + (double)device->outside_bytes) / (double)device->total_bytes,
           own = held / (double)device->capacity_bytes;
    return fill > own ? fill : own;
}

/* Whether that is at least `share`: without a division, for who asks on every allocation. */
static bool is_filled(const struct sg_device *device, uint64_t more, double share)
{
    double held = (double)(device->usage.reserved.now + more);
    return held + (double)device->outside_bytes >= share * (double)device->total_bytes ||
           held >= share * (double)device->capacity_bytes;
}

bool sg_device_is_roomy(const struct sg_device *device, uint64_t more)
{
    return device->core->conf.reserve_slack == 0 && !is_filled(device, more, LOOSE);
}

bool sg_device_is_crowded(const struct sg_device *device, uint64_t more)
{
    return device->core->conf.reserve_slack != 0 || is_filled(device, more, CROWDED);
}

/* The most bytes that have ever been allocated, with `more`. */
static uint64_t allocated_at_most(const struct sg_device *device, uint64_t more)
{
    const struct sg_usage *usage = &device->usage;
    uint64_t now = usage->allocated.now + more, most = usage->allocated.peak,
             before = device->peak_before[SG_STAT_allocated_bytes];
    most = most > before ? most : before;
    return now > most ? now : most;
}

bool sg_device_keeps_apart(const struct sg_device *device, uint64_t more)
{
    double most = (double)allocated_at_most(device, more);
    return most + (double)device->outside_bytes >= APART * (double)device->total_bytes ||
           most >= APART * (double)device->capacity_bytes || sg_device_is_crowded(device, more);
}

bool sg_device_may_pack(const struct sg_device *device, sg_slot slot)
{
    return (device->core->conf.reserve_slack != 0 || device->move_tokens >= TOKENS_KEPT) &&
           !sg_device_is_shared(device, slot);
}

/* Bytes that may be reserved before pages are moved instead of created, when `more` are about to be. */
static uint64_t budget(const struct sg_device *device, uint64_t more, uint64_t block_bytes)
{
    double peak = (double)allocated_at_most(device, block_bytes), slack = device->core->conf.reserve_slack;
    if (slack == 0) {
        double fill = fill_with(device, more);
        if (fill < LOOSE)
            return UINT64_MAX;
        slack = fill < TIGHT ? SLACK_LOOSE - (SLACK_LOOSE - 1) * (fill - LOOSE) / (TIGHT - LOOSE) : 1;
    }
    return (uint64_t)(slack * peak);
}

struct sg_wanted sg_device_moves_wanted(const struct sg_device *device, uint64_t more, uint64_t block_bytes,
    bool refused)
{
    uint64_t held = device->usage.reserved.now + more, allowed = budget(device, more, block_bytes);
    uint64_t most = refused && device->refused_at && device->refused_at < device->capacity_bytes ? device->refused_at
                                                                                                 : device->capacity_bytes;
    uint64_t should = held > allowed ? held - allowed : 0, must = held > most ? held - most : 0;
    if (device->refused_at && held > device->refused_at && held - device->refused_at > should)
        should = held - device->refused_at;
    should = should > must ? should : must;
    return (struct sg_wanted){should < more ? should : more, must};
}
