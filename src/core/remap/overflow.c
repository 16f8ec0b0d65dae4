/* From below: what may be had and how the block is parted, its memory made and unmade, the block as a whole. */
#include "core/remap/overflow.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/remap/execute.h"
#include "core/remap/page_calls.h"
#include "core/space/placement.h"
#include "core/state/accounts.h"
#include "core/state/parts.h"
#include "core/state/regions.h"
#include "core/state/replay_steps.h"

/* A block under way. */
struct overflow {
    struct sg_device *device;
    uint64_t page;          /* bytes of its only page */
    uint64_t part, granule; /* bytes of a near part; of the host's pages */
    uint64_t give_back;     /* bytes of idle pages that make room for near parts */
    uint64_t far;           /* bytes of the far part: planned, then made */
    struct sg_region *region;
    struct sg_parts *parts;
    struct sg_placement placement;
    uint32_t busy; /* the extent of the page */
    bool lost;     /* its addresses can't be used again */
};

/* `value` as a multiple of `step`, at least as large. */
static uint64_t overflow_round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* Keeps for the report of running out what overflow lacked. */
static void overflow_note_lack(struct sg_device *device, enum sg_overflow_lack why)
{
    sg_device_lock(device);
    device->room.overflow_lacks = why;
    sg_device_unlock(device);
}

/* Bytes of the device that may be held: by the limit, beside others, and by what the driver has refused. */
static uint64_t overflow_most_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t most = device->capacity_bytes, refused = device->room.refused_at, outside = device->room.outside_bytes;
    uint64_t beside = device->total_bytes > outside ? device->total_bytes - outside : 0;
    most = beside < most ? beside : most;
    return refused && refused < most ? refused : most;
}

/* Bytes of the device that near parts may take once all idle pages are given back. A spare of it is left alone. */
static uint64_t overflow_near_room_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t most = overflow_most_locked(device);
    uint64_t stays = sg_device_held_locked(device) - sg_device_idle_locked(device) +
                     device->capacity_bytes / SG_OVERFLOW_SPARE;
    return most > stays ? most - stays : 0;
}

/* Parts the block: near parts as far as there is room, the rest is far. At least one granule is, since the device could not
   make a whole block of what it has. */
static void overflow_part_locked(struct overflow *block) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&block->device->lock);
    struct sg_device *device = block->device;
    sg_device_drain_quick_lists_locked(device);
    sg_device_coalesce_completed_locked(device);
    uint64_t room = overflow_near_room_locked(device), most = block->page - block->granule;
    uint64_t near = (room < most ? room : most) / block->part * block->part;
    uint64_t held = sg_device_held_locked(device) + near, most_held = overflow_most_locked(device);
    block->far = block->page - near;
    block->give_back = held > most_held ? held - most_held : 0;
}

/* The outcome of the first section: bytes of the far part, with the granule's logarithm in the bits below a unit. Below a
   unit: why there is none. */
static uint64_t overflow_outcome(uint64_t far, uint64_t granule)
{
    return far | (uint64_t)__builtin_ctzll(granule);
}

/* True if the driver makes pages in the host's memory. It is asked once a device. A replay has the granule from the trace. */
static bool overflow_has_pages_growing(struct overflow *block, const struct segalloc_trace_record *replayed)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    if (!device->growth.host_asked && !replayed)
        device->growth.host_granularity = sg_pages_host_granularity(&device->pages);
    device->growth.host_asked |= !replayed;
    uint64_t granule = device->growth.host_granularity;
    if (granule && granule < device->granularity)
        granule = device->granularity;
    if (replayed)
        granule = replayed->size >= SG_UNIT ? UINT64_C(1) << (replayed->size & (SG_UNIT - 1) & 63) : 0;
    if (!granule || granule & (granule - 1))
        return false;
    /* A far part begins where the near ones end, so these are multiples of the host's granule too. */
    block->granule = granule;
    block->part = overflow_round_up(sg_device_regions_growing(device)->page_bytes[SG_KIND_REGULAR], block->granule);
    return true;
}

/* The reason why a far part may not be made; SG_OVERFLOW_NOT_ASKED: it may. `room`: what the host has to spare. */
static enum sg_overflow_lack overflow_bound_locked(const struct overflow *block, uint64_t room) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&block->device->lock);
    uint64_t option = block->device->core->conf.overflow_host, used = block->device->accounts.usage.overflow.now;
    if (used > option || block->far > option - used)
        return SG_OVERFLOW_OPTION;
    return block->far > room ? SG_OVERFLOW_HOST : SG_OVERFLOW_NOT_ASKED;
}

/* Plans the block in the first section. False: it may not lie elsewhere, and why is noted. */
static bool overflow_plan_growing(struct overflow *block, size_t bytes, const struct sg_tag *tag) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    bool has_pages = overflow_has_pages_growing(block, replayed);
    uint64_t room = device->core->callbacks.host_room && !replayed ? device->core->callbacks.host_room() : UINT64_MAX;
    enum sg_overflow_lack why = bytes < SG_OVERFLOW_LEAST ? SG_OVERFLOW_SMALL
                                : tag->memory_tag         ? SG_OVERFLOW_TAGGED
                                : !has_pages              ? SG_OVERFLOW_NO_PAGES
                                                          : SG_OVERFLOW_NOT_ASKED;
    sg_device_lock(device);
    if (why == SG_OVERFLOW_NOT_ASKED) {
        block->page = overflow_round_up(bytes, block->granule);
        overflow_part_locked(block);
        why = overflow_bound_locked(block, room);
    }
    uint64_t outcome = why == SG_OVERFLOW_NOT_ASKED ? overflow_outcome(block->far, block->granule) : why;
    outcome = sg_replay_step_outcome(replayed, SEGALLOC_TURN_OVERFLOW, outcome);
    bool may = outcome >= SG_UNIT && outcome / SG_UNIT * SG_UNIT <= block->page;
    block->far = may ? outcome / SG_UNIT * SG_UNIT : 0;
    device->room.overflow_lacks = may ? SG_OVERFLOW_NOT_ASKED : (enum sg_overflow_lack)outcome;
    sg_emit_step_locked(device, SEGALLOC_TURN_OVERFLOW, outcome);
    sg_device_unlock(device);
    return may;
}

/* Finds the region that a step before has made, and claims its page. False: no host memory, or there are too many blocks. */
static bool overflow_claim(struct overflow *block)
{
    struct sg_device *device = block->device;
    uint32_t units = (uint32_t)(block->page >> SG_UNIT_SHIFT);
    sg_device_lock(device);
    for (uint32_t i = 0; i < device->regions.count && !block->region; i++) {
        struct sg_region *region = device->regions.region[i];
        if (sg_purpose_kind(device->regions.purpose[i]) == SG_KIND_OVERFLOW && region->units == units &&
            sg_region_is_hole_locked(region))
            block->region = region;
    }
    if (block->region && sg_region_find_placement_locked(block->region, units, false, SG_FEWEST_NEW_PAGES,
                             (struct sg_taker){0}, &block->placement))
        block->busy = sg_region_claim_locked(block->region, &block->placement);
    sg_device_unlock(device);
    return block->busy;
}

/* Creates the near parts until the driver has no more, and the far part for what is lacking then. The driver may have less
   than the books say, because other processes take memory meanwhile. So the far part grows, within its bounds.

   For example, a block of 64 MiB was parted into 48 near and 16 far. The driver refuses the eleventh page of 4 MiB: 40 MiB are
   near, and the far part has 24. */
static CUresult overflow_create_growing(struct overflow *block, bool replayed) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    struct sg_parts *parts = block->parts;
    uint64_t near = block->page - block->far;
    CUresult result = CUDA_SUCCESS;
    parts->part_bytes = block->part;
    while (parts->near_bytes < near && result == CUDA_SUCCESS) {
        result = sg_page_calls_create_growing(device, block->part, &parts->handle[parts->count]);
        parts->count += result == CUDA_SUCCESS;
        parts->near_bytes += result == CUDA_SUCCESS ? block->part : 0;
    }
    uint64_t far = block->page - parts->near_bytes, room = UINT64_MAX;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !replayed) {
        enum sg_overflow_lack why;
        if (device->core->callbacks.host_room)
            room = device->core->callbacks.host_room();
        block->far = far;
        sg_device_lock(device);
        why = overflow_bound_locked(block, room);
        device->room.overflow_lacks = why;
        sg_device_unlock(device);
        result = why == SG_OVERFLOW_NOT_ASKED ? CUDA_SUCCESS : result;
    }
    if (result != CUDA_SUCCESS)
        return result;
    sg_count(device, SG_STAT_calls_create, 1);
    result = sg_pages_create_on_host(&device->pages, far, &parts->handle[parts->count]);
    parts->count += result == CUDA_SUCCESS;
    parts->far_bytes = result == CUDA_SUCCESS ? far : 0;
    return result;
}

/* Maps the parts and gives access. *ret_mapped: bytes that are mapped, also after an error. */
static CUresult overflow_map_growing(struct overflow *block, uint64_t *ret_mapped) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    CUresult result = CUDA_SUCCESS;
    *ret_mapped = 0;
    for (uint32_t i = 0; i < block->parts->count && result == CUDA_SUCCESS; i++) {
        uint64_t bytes = i + 1 < block->parts->count ? block->part : block->parts->far_bytes;
        sg_count(device, SG_STAT_calls_map, 1);
        result = sg_pages_map(&device->pages, block->region->base + *ret_mapped, bytes, block->parts->handle[i]);
        *ret_mapped += result == CUDA_SUCCESS ? bytes : 0;
    }
    return result == CUDA_SUCCESS ? sg_page_calls_access_growing(device, block->region, 0, 1) : result;
}

/* Gives all back that was made, so that the block fails as if nobody had tried. Addresses that the driver does not unmap are lost. */
static void overflow_unmake_growing(struct overflow *block, uint64_t mapped) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    if (mapped) {
        sg_count(device, SG_STAT_calls_unmap, 1);
        block->lost = sg_pages_unmap(&device->pages, block->region->base, mapped) != CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < block->parts->count; i++)
        sg_page_calls_release_growing(device, block->parts->handle[i]);
    sg_parts_free(block->parts);
    block->parts = NULL;
}

enum { NOT_MADE = 0, ADDRESSES_LOST = 1 }; /* outcomes in place of bytes */

/* Makes the memory of a block that is claimed. After an error nothing of it is left, and block->parts is NULL. */
static void overflow_make_growing(struct overflow *block, bool replayed) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    uint64_t mapped = 0;
    block->parts = sg_parts_new((uint32_t)(block->page / block->part + 2));
    if (!block->parts)
        return;
    CUresult result = overflow_create_growing(block, replayed);
    if (result == CUDA_SUCCESS)
        result = overflow_map_growing(block, &mapped);
    if (result != CUDA_SUCCESS)
        overflow_unmake_growing(block, mapped);
}

/* The second section: the memory is there, or the block is abandoned. A replay makes what the recorded run had in the end. */
static bool overflow_carry_out_growing(struct overflow *block) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    uint64_t recorded = sg_replay_step_outcome(replayed, SEGALLOC_TURN_ELSEWHERE, block->far);
    bool makes = overflow_claim(block) && recorded > ADDRESSES_LOST && recorded <= block->page;
    block->lost = block->busy && recorded == ADDRESSES_LOST;
    block->far = makes ? recorded : block->far;
    if (makes)
        overflow_make_growing(block, replayed != NULL);
    uint64_t outcome = block->parts ? block->parts->far_bytes : block->lost ? ADDRESSES_LOST : NOT_MADE;
    sg_device_lock(device);
    if (!block->parts && device->room.overflow_lacks == SG_OVERFLOW_NOT_ASKED)
        device->room.overflow_lacks = SG_OVERFLOW_DRIVER;
    if (!block->parts && block->busy) {
        block->region->memory.handle[0] = block->lost ? SG_PAGE_LOST : 0;
        sg_region_abandon_locked(block->region, block->busy, 0, 0);
    }
    sg_emit_step_locked(device, SEGALLOC_TURN_ELSEWHERE, outcome);
    sg_device_unlock(device);
    return block->parts;
}

/* The last section: the block is handed out. A page with memory has a handle that is not 0, so the page has that of its first
   part. Whoever gives it back asks the parts. */
static CUdeviceptr overflow_commit_growing(struct overflow *block, size_t bytes, const struct sg_tag *tag,
    bool *ret_first) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&block->device->growth.grow);
    struct sg_device *device = block->device;
    struct sg_region *region = block->region;
    uint32_t parts = block->parts->count;
    (void)sg_replay_step(device);
    sg_device_lock(device);
    region->memory.handle[0] = block->parts->handle[0];
    region->memory.after[0] = (struct sg_after){0};
    sg_parts_keep_locked(device, region, block->parts);
    sg_device_count_pages_locked(device, region, 1);
    sg_count(device, SG_STAT_grows, 1);
    sg_count(device, SG_STAT_pages_created, parts);
    *ret_first = device->accounts.counter[SG_STAT_overflow_blocks] == 0;
    sg_count(device, SG_STAT_overflow_blocks, 1);
    sg_count(device, SG_STAT_growth_cost_ns,
        sg_cost_ns(device->accounts.cost, SG_COST_create, parts, parts) +
            sg_cost_ns(device->accounts.cost, SG_COST_map, parts, parts) +
            sg_cost_ns(device->accounts.cost, SG_COST_set_access, 1, parts));
    uint32_t extent = sg_region_commit_locked(region, block->busy, &block->placement, tag->slot);
    CUdeviceptr address = sg_device_hand_out_locked(device, extent, bytes, tag);
    sg_usage_derive_locked(device);
    sg_device_unlock(device);
    return address;
}

/* One line, when it first happens on a device. */
static void overflow_say(const struct sg_device *device, size_t bytes, uint64_t far)
{
    char line[300];
    if (!device->core->callbacks.warn || device->core->replay)
        return;
    snprintf(line, sizeof line,
        "device %d is out of memory: of a block of %" PRIu64 " MiB %" PRIu64
        " MiB lie in the host's memory while it lives, as overflow:host allows; work on them is slower",
        device->ordinal, (uint64_t)bytes >> 20, far >> 20);
    device->core->callbacks.warn(line);
}

/* The block from its plan to its end, under `grow`. *ret_far: bytes of its far part, if it is the device's first. */
static CUresult overflow_serve_growing(struct sg_device *device, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret, uint64_t *ret_far) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct overflow block = {.device = device};
    if (!overflow_plan_growing(&block, bytes, tag))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (block.give_back)
        (void)sg_device_give_back_growing(device, block.give_back);
    if (sg_device_add_region_growing(device, sg_purpose(SG_KIND_OVERFLOW, 0), block.page) != CUDA_SUCCESS) {
        overflow_note_lack(device, SG_OVERFLOW_REGIONS);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!overflow_carry_out_growing(&block))
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool first;
    uint64_t far = block.parts->far_bytes;
    *ret = overflow_commit_growing(&block, bytes, tag, &first);
    *ret_far = first ? far : 0;
    return CUDA_SUCCESS;
}

/* True if overflow is to be tried: the option and the caller say so, or the trace of a replay. */
static bool overflow_is_asked(const struct sg_device *device, const struct sg_tag *tag)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    if (replayed)
        return sg_replay_step_is(replayed, SEGALLOC_TURN_OVERFLOW);
    return tag->overflow && !tag->modest && device->core->conf.overflow_host;
}

CUresult sg_overflow_serve(struct sg_device *device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    uint64_t far = 0;
    if (!overflow_is_asked(device, tag))
        return CUDA_ERROR_OUT_OF_MEMORY;
    sg_replay_grow_lock(device);
    CUresult result = overflow_serve_growing(device, bytes, tag, ret, &far);
    sg_grow_unlock(device);
    if (far)
        overflow_say(device, bytes, far);
    return result;
}

/* The next region from *index on that has a far part; NULL: there is none. */
static struct sg_region *overflow_next_growing(struct sg_device *device, uint32_t *index) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct sg_regions *regions = sg_device_regions_growing(device);
    while (*index < regions->count && !regions->region[*index]->memory.parts)
        ++*index;
    return *index < regions->count ? regions->region[(*index)++] : NULL;
}

void sg_overflow_give_back_growing(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint32_t index = 0;
    for (struct sg_region *region; (region = overflow_next_growing(device, &index));)
        sg_device_retire_growing(device, region);
}
