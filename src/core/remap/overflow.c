/* From below: what the host's memory may serve, the two ends of an attempt, pages given back. */
#include "core/remap/overflow.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/remap/execute.h"
#include "core/state/accounts.h"
#include "core/state/budget.h"
#include "core/state/regions.h"
#include "core/state/replay_steps.h"

/* `value` as a multiple of `step`, at least as large. */
static uint64_t overflow_round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* The granularity of pages in the host's memory, a multiple of the device's; 0: the driver makes none. It is asked once a
   device. */
static uint64_t overflow_granule_growing(struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    if (!device->growth.host_asked)
        device->growth.host_granularity = sg_pages_host_granularity(&device->pages);
    device->growth.host_asked = true;
    uint64_t granule = device->growth.host_granularity;
    granule = granule && granule < device->granularity ? device->granularity : granule;
    return granule & (granule - 1) ? 0 : granule;
}

/* Bounds what may be made in the host's memory for the block, `room` bytes of which are to spare. Pages that are there already may
   serve in any case. Returns why nothing may, or SG_OVERFLOW_NOT_ASKED. */
static enum sg_overflow_lack overflow_bound_locked(struct sg_device *device, uint64_t room, uint64_t granule)
    SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t option = device->core->conf.overflow_host, used = device->accounts.usage.overflow.now;
    option = option > used ? option - used : 0;
    device->growth.far_lack = option <= room ? SG_OVERFLOW_OPTION : SG_OVERFLOW_HOST;
    device->growth.far_most = (option < room ? option : room) / granule * granule;
    return used || device->growth.far_most ? SG_OVERFLOW_NOT_ASKED : device->growth.far_lack;
}

/* True if the device has a region for overflow, or can get one. */
static bool overflow_has_region_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    bool has = device->regions.count < SG_REGIONS_MAX;
    for (uint32_t i = 0; i < device->regions.count && !has; i++)
        has = sg_device_is_overflow_locked(device, device->regions.region[i]);
    return has;
}

/* The outcome of the first section: a unit more than the bytes that may be made. The bits below a unit have the granule's
   logarithm. Below a unit: why there are none. */
static uint64_t overflow_outcome(uint64_t far_most, uint64_t granule)
{
    return (far_most / SG_UNIT + 1) * SG_UNIT | (uint64_t)__builtin_ctzll(granule);
}

/* The first section: whether the block may lie elsewhere, with how much, and in pages of which size. */
static bool overflow_allow_growing(struct sg_device *device, size_t bytes, const struct sg_tag *tag) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    uint64_t granule = replayed ? 0 : overflow_granule_growing(device), outcome;
    uint64_t room = device->core->callbacks.host_room && !replayed ? device->core->callbacks.host_room() : UINT64_MAX;
    enum sg_overflow_lack why = bytes < SG_OVERFLOW_LEAST ? SG_OVERFLOW_SMALL
                                : tag->memory_tag         ? SG_OVERFLOW_TAGGED
                                : !granule                ? SG_OVERFLOW_NO_PAGES
                                                          : SG_OVERFLOW_NOT_ASKED;
    sg_device_lock(device);
    if (why == SG_OVERFLOW_NOT_ASKED)
        why = overflow_has_region_locked(device) ? overflow_bound_locked(device, room, granule) : SG_OVERFLOW_REGIONS;
    outcome = why == SG_OVERFLOW_NOT_ASKED ? overflow_outcome(device->growth.far_most, granule) : why;
    outcome = sg_replay_step_outcome(replayed, SEGALLOC_TURN_OVERFLOW, outcome);
    bool may = outcome >= SG_UNIT;
    if (may) {
        granule = UINT64_C(1) << (outcome & (SG_UNIT - 1) & 63);
        device->growth.far_most = (outcome / SG_UNIT - 1) * SG_UNIT;
        device->regions.page_bytes[SG_KIND_OVERFLOW] =
            overflow_round_up(device->regions.page_bytes[SG_KIND_REGULAR], granule);
    }
    device->room.overflow_lacks = may ? SG_OVERFLOW_NOT_ASKED : (enum sg_overflow_lack)outcome;
    sg_emit_step_locked(device, SEGALLOC_TURN_OVERFLOW, outcome);
    sg_device_unlock(device);
    return may;
}

bool sg_overflow_is_asked(const struct sg_device *device, const struct sg_tag *tag)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    if (replayed)
        return sg_replay_step_is(replayed, SEGALLOC_TURN_OVERFLOW);
    return tag->overflow && !tag->modest && device->core->conf.overflow_host;
}

bool sg_overflow_begin_growing(struct sg_device *device, size_t bytes, const struct sg_tag *tag, struct sg_want *want)
{
    SG_ASSERT_HELD(&device->growth.grow);
    if (!overflow_allow_growing(device, bytes, tag))
        return false;
    want->purpose = sg_purpose(SG_KIND_OVERFLOW, 0);
    want->end = SG_END_LOW;
    want->aliases = false;
    want->refused = true;
    return true;
}

uint64_t sg_overflow_note_locked(struct sg_device *device, uint32_t id)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    const struct sg_region *region = device->regions.region[extent->region];
    uint64_t far = 0;
    for (uint32_t begin = extent->begin, end = extent->begin + extent->size; begin < end;) {
        uint32_t page = begin / region->page_units, next = (page + 1) * region->page_units;
        next = next < end ? next : end;
        far += region->memory.far[page] ? next - begin : 0;
        begin = next;
    }
    far <<= SG_UNIT_SHIFT;
    device->room.far_allocs = device->accounts.usage.allocs;
    if (!far)
        return 0;
    sg_count(device, SG_STAT_overflow_blocks, 1);
    sg_emit(device, SEGALLOC_RECORD_FAR, 0, sg_device_unknown_stream(device), 0, far);
    return far;
}

void sg_overflow_say(const struct sg_device *device, size_t bytes, uint64_t far)
{
    char line[300];
    if (!device->core->callbacks.warn || device->core->replay)
        return;
    snprintf(line, sizeof line,
        "device %d is out of memory: of a block of %" PRIu64 " MiB %" PRIu64
        " MiB lie in the host's memory while it lives, as overflow:host allows; work on them is slower",
        device->ordinal, (((uint64_t)bytes - 1) >> 20) + 1, ((far - 1) >> 20) + 1);
    device->core->callbacks.warn(line);
}

/* True if idle pages of the host's are better given back: all that is in use would find room on the device by now. With much room
   that is certain. With little, the next blocks would soon want those pages again, so it counts only once no block has wanted any
   for a while. */
static bool overflow_is_over_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_usage *usage = &device->accounts.usage;
    uint64_t room = sg_device_spared_room_locked(device, sg_device_held_locked(device)), used = usage->active.now;
    bool long_ago = usage->allocs - device->room.far_allocs >= SG_OVERFLOW_ALLOCS;
    return used + (long_ago ? 0 : device->capacity_bytes / SG_OVERFLOW_MARGIN) <= room;
}

bool sg_overflow_may_return_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    bool idle = false;
    for (uint32_t i = 0; i < device->regions.count && !idle; i++)
        idle = device->regions.region[i]->memory.far_pages &&
               device->regions.region[i]->lookup.whole_free + device->regions.region[i]->quick.whole_deferred;
    return idle && overflow_is_over_locked(device);
}

/* Gives them back if they may. `asked`: the step is recorded even where there are none. */
static void overflow_return_growing(struct sg_device *device, bool asked) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_device_lock(device);
    asked |= device->accounts.usage.overflow.now > 0;
    bool may = asked && sg_overflow_may_return_locked(device);
    if (asked)
        sg_emit_step_locked(device, SEGALLOC_TURN_RETURN, may);
    sg_device_unlock(device);
    if (may)
        sg_device_give_back_far_growing(device);
}

void sg_overflow_return_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    if (sg_replay_step_is(sg_replay_step(device), SEGALLOC_TURN_RETURN))
        overflow_return_growing(device, /* asked */ false);
}

void sg_overflow_return(struct sg_device *device)
{
    sg_replay_grow_lock(device);
    overflow_return_growing(device, /* asked */ true);
    sg_grow_unlock(device);
}
