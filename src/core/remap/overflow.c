/* From below: what other places may serve, the two ends of an attempt, pages given back. */
#include "core/remap/overflow.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

/* Makes a neighbour's pages ready: one of them was mapped for the device and its peers, once. False: it can't be. */
static bool overflow_try_neighbour_growing(struct sg_device *device, int ordinal) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_overflow_neighbour *neighbour = &device->growth.neighbour;
    uint64_t bit = UINT64_C(1) << ordinal;
    if (neighbour->device == ordinal && neighbour->tried & bit)
        return true;
    if (!sg_pages_try_peer(&device->pages, ordinal, sg_device_access_growing(device)->peers, &neighbour->granularity)) {
        neighbour->refused |= bit;
        return false;
    }
    neighbour->granularity = neighbour->granularity < device->granularity ? device->granularity : neighbour->granularity;
    neighbour->tried |= bit;
    neighbour->device = ordinal;
    return true;
}

/* Finds the neighbour, which stays the same while the device has pages there. *ret_room: what it has to spare.
   False: there is none, which is said once. */
static bool overflow_find_neighbour_growing(struct sg_device *device, bool holds, uint64_t *ret_room) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct sg_core_callbacks *callbacks = &device->core->callbacks;
    struct sg_overflow_neighbour *neighbour = &device->growth.neighbour;
    int ordinal = -1;
    for (;;) {
        uint64_t among = holds ? UINT64_C(1) << neighbour->device : ~neighbour->refused;
        if (!callbacks->neighbour ||
            !callbacks->neighbour(device->ordinal, sg_device_access_growing(device)->peers, among, &ordinal, ret_room))
            break;
        if (holds || overflow_try_neighbour_growing(device, ordinal))
            return true;
    }
    if (!holds && !neighbour->said && callbacks->warn) {
        char line[200];
        snprintf(line, sizeof line,
            "overflow:peer has no effect on device %d: it reaches no other device's memory as its own", device->ordinal);
        callbacks->warn(line);
    }
    neighbour->said = true;
    return false;
}

/* The outcome of a section: a unit more than the bytes that may be made. The bits below a unit have a number.
   Below a unit: why there are none. */
static uint64_t overflow_outcome(uint64_t most, uint64_t number)
{
    return (most / SG_UNIT + 1) * SG_UNIT | number;
}
static uint64_t overflow_outcome_most(uint64_t outcome)
{
    return outcome < SG_UNIT ? 0 : (outcome / SG_UNIT - 1) * SG_UNIT;
}

/* Bounds what may be made at a place, of which `used` bytes are there and `room` are to spare. */
static void overflow_bound_growing(struct sg_device *device, enum sg_place place, uint64_t option, uint64_t used,
    uint64_t room, uint64_t granule) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t left = option == SG_AUTO ? UINT64_MAX : option > used ? option - used : 0;
    device->growth.far[place] = (struct sg_far_bound){.most = (left < room ? left : room) / granule * granule,
        .lack = left <= room ? SG_OVERFLOW_OPTION : SG_OVERFLOW_ROOM};
}

/* The section for a neighbour: which one, and how much may be made there. */
static void overflow_ask_neighbour_growing(struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    struct sg_overflow_neighbour *neighbour = &device->growth.neighbour;
    struct sg_far_bound *far = &device->growth.far[SG_PLACE_PEER];
    if (replayed ? !sg_replay_step_is(replayed, SEGALLOC_TURN_NEIGHBOUR) : !device->core->conf.overflow.peer)
        return;
    sg_device_lock(device);
    uint64_t used = device->accounts.usage.overflow_peer.now, room = 0;
    sg_device_unlock(device);
    far->lack = SG_OVERFLOW_NO_NEIGHBOUR;
    if (!replayed && overflow_find_neighbour_growing(device, used > 0, &room))
        overflow_bound_growing(device, SG_PLACE_PEER, device->core->conf.overflow.peer, used, room,
            neighbour->granularity);
    uint64_t outcome = far->most ? overflow_outcome(far->most, (uint64_t)neighbour->device) : far->lack;
    outcome = sg_replay_step_outcome(replayed, SEGALLOC_TURN_NEIGHBOUR, outcome);
    if (outcome >= SG_UNIT)
        neighbour->device = (int)(outcome % SG_UNIT % SG_DEVICES_MAX);
    far->most = overflow_outcome_most(outcome);
    sg_device_lock(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_NEIGHBOUR, outcome);
    sg_device_unlock(device);
}

/* Bounds what may be made in the host's memory. Returns the granule of far pages. */
static uint64_t overflow_bound_host_growing(struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_far_bound *far = device->growth.far;
    uint64_t granule = device->growth.neighbour.device >= 0 ? device->growth.neighbour.granularity : device->granularity;
    uint64_t option = device->core->conf.overflow.host, host = option ? overflow_granule_growing(device) : 0;
    uint64_t (*room)(void) = device->core->callbacks.host_room;
    sg_device_lock(device);
    const struct sg_usage *usage = &device->accounts.usage;
    uint64_t used = usage->overflow.now - usage->overflow_peer.now;
    sg_device_unlock(device);
    if (host)
        overflow_bound_growing(device, SG_PLACE_HOST, option, used, room ? room() : UINT64_MAX, host);
    else if (option)
        far[SG_PLACE_HOST].lack = SG_OVERFLOW_NO_PAGES;
    return host > granule ? host : granule;
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

/* The reason why the block may lie nowhere else, as the places are bounded; NOT_ASKED: it may. Pages that are
   there already may serve in any case. */
static enum sg_overflow_lack overflow_judge_locked(struct sg_device *device) SG_REQUIRES(lock) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    const struct sg_far_bound *far = device->growth.far;
    if (!overflow_has_region_locked(device))
        return SG_OVERFLOW_REGIONS;
    if (device->accounts.usage.overflow.now || far[SG_PLACE_PEER].most || far[SG_PLACE_HOST].most)
        return SG_OVERFLOW_NOT_ASKED;
    device->room.overflow_lacks.peer = far[SG_PLACE_PEER].lack;
    device->room.overflow_lacks.host = far[SG_PLACE_HOST].lack;
    return far[SG_PLACE_HOST].lack ? far[SG_PLACE_HOST].lack : far[SG_PLACE_PEER].lack;
}

/* The last section: whether the block may lie elsewhere, and in pages of which size. */
static bool overflow_allow_growing(struct sg_device *device, enum sg_overflow_lack why) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    bool judges = !replayed && why == SG_OVERFLOW_NOT_ASKED;
    uint64_t granule = judges ? overflow_bound_host_growing(device) : device->granularity, outcome;
    sg_device_lock(device);
    device->room.overflow_lacks = (struct sg_overflow_lacks){.any = why};
    if (judges)
        why = overflow_judge_locked(device);
    outcome = why == SG_OVERFLOW_NOT_ASKED
                  ? overflow_outcome(device->growth.far[SG_PLACE_HOST].most, (uint64_t)__builtin_ctzll(granule))
                  : why;
    outcome = sg_replay_step_outcome(replayed, SEGALLOC_TURN_OVERFLOW, outcome);
    bool may = outcome >= SG_UNIT;
    if (may) {
        granule = UINT64_C(1) << (outcome & (SG_UNIT - 1) & 63);
        device->growth.far[SG_PLACE_HOST].most = overflow_outcome_most(outcome);
        device->regions.page_bytes[SG_KIND_OVERFLOW] =
            overflow_round_up(device->regions.page_bytes[SG_KIND_REGULAR], granule);
    }
    sg_emit_step_locked(device, SEGALLOC_TURN_OVERFLOW, outcome);
    sg_device_unlock(device);
    return may;
}

bool sg_overflow_is_asked(const struct sg_device *device, const struct sg_tag *tag)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    if (replayed)
        return sg_replay_step_is(replayed, SEGALLOC_TURN_NEIGHBOUR) ||
               sg_replay_step_is(replayed, SEGALLOC_TURN_OVERFLOW);
    return tag->overflow && !tag->modest && sg_conf_overflows(&device->core->conf);
}

bool sg_overflow_begin_growing(struct sg_device *device, size_t bytes, const struct sg_tag *tag, struct sg_want *want)
{
    SG_ASSERT_HELD(&device->growth.grow);
    enum sg_overflow_lack why = bytes < SG_OVERFLOW_LEAST ? SG_OVERFLOW_SMALL
                                : tag->memory_tag         ? SG_OVERFLOW_TAGGED
                                                          : SG_OVERFLOW_NOT_ASKED;
    memset(device->growth.far, 0, sizeof device->growth.far);
    if (why == SG_OVERFLOW_NOT_ASKED)
        overflow_ask_neighbour_growing(device);
    if (!overflow_allow_growing(device, why))
        return false;
    want->purpose = sg_purpose(SG_KIND_OVERFLOW, 0);
    want->end = SG_END_LOW;
    want->aliases = false;
    want->refused = true;
    return true;
}

struct sg_far_bytes sg_overflow_note_locked(struct sg_device *device, uint32_t id)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    const struct sg_region *region = device->regions.region[extent->region];
    uint64_t units[SG_PLACES] = {0};
    for (uint32_t begin = extent->begin, end = extent->begin + extent->size; begin < end;) {
        uint32_t page = begin / region->page_units, next = (page + 1) * region->page_units;
        next = next < end ? next : end;
        units[region->memory.place[page]] += next - begin;
        begin = next;
    }
    struct sg_far_bytes far = {units[SG_PLACE_PEER] << SG_UNIT_SHIFT, units[SG_PLACE_HOST] << SG_UNIT_SHIFT};
    device->room.far_allocs = device->accounts.usage.allocs;
    if (!far.peer && !far.host)
        return far;
    sg_count(device, SG_STAT_overflow_blocks, 1);
    sg_emit(device, SEGALLOC_RECORD_FAR, 0, sg_device_unknown_stream(device), far.peer, far.peer + far.host);
    return far;
}

/* Whole MiB for a line, rounded up. */
static uint64_t overflow_mib(uint64_t bytes)
{
    return (bytes >> 20) + (bytes % (UINT64_C(1) << 20) != 0);
}

void sg_overflow_say(const struct sg_device *device, size_t bytes, struct sg_far_bytes far, int neighbour)
{
    char line[300], there[80] = "", host[80] = "";
    if (!device->core->callbacks.warn || device->core->replay)
        return;
    if (far.peer)
        snprintf(there, sizeof there, " %" PRIu64 " MiB lie on device %d", overflow_mib(far.peer), neighbour);
    if (far.host)
        snprintf(host, sizeof host, "%s %" PRIu64 " MiB%s in the host's memory", far.peer ? " and" : "",
            overflow_mib(far.host), far.peer ? "" : " lie");
    const char *places = !far.host ? "peer" : !far.peer ? "host" : "peer,host";
    snprintf(line, sizeof line,
        "device %d is out of memory: of a block of %" PRIu64
        " MiB%s%s while it lives, as overflow:%s allows; work on them is slower",
        device->ordinal, overflow_mib(bytes), there, host, places);
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
