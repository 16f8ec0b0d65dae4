/* The core's interface: the calls of core.h, sorted out to devices. The fast half of an allocation is here. */
#include "core/core.h"

#include "core/grow.h"
#include "base/meta.h"
#include "core/remap/execute.h"
#include "config/roundup.h"
#include "core/segments/fixed_segments.h"
#include "core/space/paused.h"
#include "core/start.h"
#include "core/state/accounts.h"
#include "core/state/budget.h"
#include "core/state/pins.h"
#include "core/state/regions.h"
#include "core/state/replay_steps.h"
#include "core/state/tags.h"
#include "core/state/trace_streams.h"
#include "core/streams/fences.h"
#include "core/streams/pending_frees.h"

struct sg_core *sg_core_create(const struct sg_core_params *params)
{
    struct sg_core *core = sg_meta_map(sizeof *core);
    if (!core)
        return NULL;
    sg_lock_init(&core->setup, SG_RANK_SETUP, 0);
    core->conf = *params->conf;
    core->driver = params->driver;
    core->observer = params->observer;
    core->callbacks = params->callbacks;
    core->plain_pages = params->plain_pages;
    core->replay = params->replay;
    return core;
}

/* Gives everything of a device back and frees its host memory. Nobody else uses it any more, so locks are taken only
   for those who assert them. First all work is waited for, then all is free, then every page goes back. */
SG_UNCHECKED_LOCKS static void destroy_device(struct sg_device *device)
{
    const struct sg_driver *driver = sg_core_driver(device->core);
    while (sg_device_ask(device, SG_ASK_WAIT)) {
    }
    sg_grow_lock(device);
    sg_device_lock(device);
    for (sg_slot slot = 0; slot < SG_SLOTS; slot++)
        sg_pending_complete_locked(device, UINT64_C(1) << slot, UINT64_MAX);
    sg_pending_settle_locked(device);
    for (uint32_t i = 0; i < device->regions.count; i++) {
        struct sg_region *region = device->regions.region[i];
        for (uint32_t page = 0; page < region->pages; page++)
            region->memory.pin[page] = 0;
        sg_device_release_all_locked(device, region, NULL);
        /* Pages that an error has left in a paused region go too. */
        if (sg_tag_is_paused_locked(device, sg_purpose_tag(device->regions.purpose[i])))
            sg_region_wake_locked(region);
    }
    /* A page of which several streams have parts is whole again only after this. */
    sg_device_coalesce_completed_locked(device);
    bool far = device->accounts.usage.overflow.now;
    sg_device_unlock(device);
    sg_device_give_back_growing(device, UINT64_MAX);
    if (far)
        sg_device_give_back_far_growing(device);
    sg_grow_unlock(device);
    if (device->fixed) {
        sg_segments_context_gone(device, NULL);
        sg_segments_trim(device);
        sg_segments_destroy(device->fixed);
    }
    for (uint32_t i = 0; i < device->regions.count; i++) {
        /* a range that isn't taken back costs nothing */
        (void)driver->address_free(device->regions.region[i]->base, device->regions.region[i]->reserved);
        sg_region_fini(device->regions.region[i]);
        sg_meta_unmap(device->regions.region[i], sizeof *device->regions.region[i]);
    }
    for (uint32_t i = 0; i < device->fences.idle_count; i++)
        driver->event_destroy(device->fences.idle_event[i].event);
    for (uint32_t i = 0; i < device->fences.count; i++)
        driver->event_destroy(device->fences.fence[i].event);
    sg_scratch_fini(&device->growth.handles);
    sg_scratch_fini(&device->growth.runs);
    sg_scratch_fini(&device->growth.pieces);
    sg_extents_fini(&device->regions.extents);
    sg_meta_unmap(device, sizeof *device);
}

void sg_core_destroy(struct sg_core *core)
{
    if (!core)
        return;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (core->device[i])
            destroy_device(core->device[i]);
    sg_meta_unmap(core, sizeof *core);
}

/* The largest request that goes to the small region while there is room, in bytes. While that region holds less than
   1/128 of all, it takes up to 1 MiB; else up to 128 KiB. */
static uint64_t small_at_low_pressure_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_usage *usage = &device->accounts.usage;
    return usage->small_reserved.now < usage->reserved.now / SG_SMALL_LOW_PRESSURE_SHARE ? SG_SMALL_LOW_PRESSURE_MOST
                                                                                  : SG_SMALL_LOW_PRESSURE_BYTES;
}

/* Chooses the kind of region, and the end from which a block is taken.

   With max_split_size large requests are taken from the high end and others from the low end, so that they do not
   part each other's ranges. That is so only as long as there is room: later, another order of placement would only
   move more pages. A range that could grow is left to requests that need that, for as long: later, pages come to
   wherever they are wanted. */
static struct sg_want want_locked(const struct sg_device *device, size_t rounded, uint32_t tag, sg_slot slot)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_want want = {.purpose = sg_purpose(SG_KIND_SMALL, tag),
        .units = (uint32_t)(rounded >> SG_UNIT_SHIFT),
        .end = SG_END_LOW,
        .slot = slot};
    if (rounded <= SG_SMALL_BYTES)
        return want;
    uint64_t least = device->core->conf.max_split_size;
    bool roomy = sg_device_is_low_pressure_locked(device, rounded);
    enum sg_region_kind kind = SG_KIND_SMALL;
    if (!roomy || rounded > small_at_low_pressure_locked(device))
        kind = rounded > device->capacity_bytes / 2 ? SG_KIND_HUGE : SG_KIND_REGULAR;
    if (roomy)
        want.end = least && rounded >= least && kind == SG_KIND_REGULAR ? SG_END_HIGH : SG_END_SETTLED;
    want.purpose = sg_purpose(kind, tag);
    return want;
}

/* Emits that nothing free serves an allocation. Apart, like what follows it. False: its tag is paused, so nothing is
   emitted. That is asked here alone, because nothing in the regions of a paused tag is free. */
static __attribute__((noinline)) bool begin_slow_locked(struct sg_device *device, size_t bytes,
    const struct sg_tag *tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    if (sg_tag_is_paused_locked(device, tag->memory_tag))
        return false;
    uint32_t stream = sg_device_stream_locked(device, tag);
    sg_emit_tag_locked(device, tag->memory_tag);
    sg_emit(device, SEGALLOC_RECORD_SLOW_BEGIN, 0, stream, 0, bytes);
    return true;
}

/* An allocation in a fixed segment: all on a device that serves those, and beside regions those that are to be contiguous.
   Apart, since few devices have them. */
static __attribute__((noinline)) CUresult malloc_fixed(struct sg_device *device, size_t bytes,
    const struct sg_tag *tag, CUdeviceptr *ret)
{
    CUresult result = sg_segments_malloc(device, bytes, tag, ret);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? sg_device_ran_out(device, bytes, tag) : result;
}

CUresult sg_core_malloc(struct sg_core *core, int ordinal, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    if (atomic_load_explicit(&core->disabled, memory_order_relaxed))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        device = sg_device_get(core, ordinal);
    if (!device || device->mode == SG_MODE_PASSTHROUGH)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* A request above the capacity can't be served, and rounding it might wrap. A region's positions are 31 bits of
       units, 1 TiB. */
    size_t rounded = bytes > sg_device_capacity(device) ? 0 : sg_roundup(core->conf.roundup_divisions, bytes);
    if (rounded == 0 || rounded >> SG_UNIT_SHIFT > INT32_MAX)
        return sg_device_ran_out(device, bytes, tag);
    sg_device_lock(device);
    /* Asked under the lock, because sg_core_fix() may have changed it. Memory of a tag stays in regions where there are any.
       A paused tag has none until it is resumed, in segments neither. */
    if (__builtin_expect(rounded >= device->regions.below, 0) && (device->mode == SG_MODE_SEGMENTS || !tag->memory_tag)) {
        bool paused = sg_tag_is_paused_locked(device, tag->memory_tag);
        sg_device_unlock(device);
        return paused ? CUDA_ERROR_NOT_PERMITTED : malloc_fixed(device, bytes, tag, ret);
    }
    /* Nearly all allocations end here: one take, and the block is accounted under the same lock. The record that the
       slow half begins is written in this section too, since another thread may change what is free as soon as the
       lock is dropped. */
    const struct sg_want want = want_locked(device, rounded, tag->memory_tag, tag->slot);
    uint32_t extent = sg_device_take_locked(device, &want);
    bool grows = false;
    if (extent)
        *ret = sg_device_hand_out_locked(device, extent, bytes, tag);
    else
        grows = begin_slow_locked(device, bytes, tag);
    sg_device_unlock(device);
    return extent ? CUDA_SUCCESS : grows ? sg_grow(device, want, bytes, tag, ret) : CUDA_ERROR_NOT_PERMITTED;
}

bool sg_core_owns(const struct sg_core *core, CUdeviceptr address)
{
    return sg_core_range_at(core, address) || sg_core_segments_at(core, address) != NULL;
}

CUresult sg_core_block(struct sg_core *core, CUdeviceptr address, struct sg_block_info *ret)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    if (!range) {
        struct sg_device *fixed = sg_core_segments_at(core, address);
        return fixed ? sg_segments_block(fixed, address, /* inside */ true, ret) : CUDA_ERROR_NOT_FOUND;
    }
    struct sg_device *device = range->device;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    sg_device_lock(device);
    uint32_t position = (uint32_t)((address - range->begin) >> SG_UNIT_SHIFT),
             id = sg_region_block_around_locked(range->region, position);
    if (!id)
        id = sg_region_paused_around_locked(range->region, position);
    if (id) {
        const struct sg_extent *extent = &device->regions.extents.extent[id];
        CUdeviceptr base = sg_region_address(range->region, extent->begin);
        /* The bytes between the end of the request and the end of its last unit are nobody's. */
        if (address - base < extent->requested) {
            *ret = (struct sg_block_info){base, extent->requested, device->ordinal,
                (CUcontext)(uintptr_t)extent->context, extent->alloc_seq, false,
                !(device->pages.kind & SG_PAGES_EXPORTABLE) || sg_device_is_overflow_locked(device, range->region)};
            result = CUDA_SUCCESS;
        }
    }
    sg_device_unlock(device);
    return result;
}

size_t sg_core_trim(struct sg_core *core, int ordinal, size_t keep)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device || core->disabled || device->mode == SG_MODE_PASSTHROUGH)
        return 0;
    if (!device->granularity)
        return sg_segments_trim(device);
    /* Freed memory whose work still runs would stay behind as pending, where the driver's own free would have waited.
       So it is waited for first, before `grow` is taken: that work may need a thread that is about to grow. */
    sg_device_ask(device, SG_ASK_FENCE);
    sg_device_drain(device);
    sg_replay_grow_lock(device);
    sg_device_lock(device);
    sg_device_coalesce_completed_locked(device);
    uint64_t spare = device->accounts.usage.reserved.now - device->accounts.usage.allocated.now;
    sg_emit(device, SEGALLOC_RECORD_EMPTY_CACHE, 0, sg_device_stream_locked(device, &(struct sg_tag){0}), 0, keep);
    uint64_t given = device->fixed ? sg_segments_empty_locked(device) : 0;
    spare -= given;
    bool far = device->accounts.usage.overflow.now;
    sg_device_unlock(device);
    given += spare > keep ? sg_device_give_back_growing(device, spare - keep) : 0;
    if (far)
        sg_device_give_back_far_growing(device);
    sg_grow_unlock(device);
    if (device->fixed)
        sg_segments_settle(device);
    return given;
}

/* Gives a device's idle pages on `neighbour` back. The record comes with the look, and a replay begins with it. */
static size_t return_from(struct sg_device *device, int neighbour)
{
    bool replays = device->core->replay != NULL;
    if (!device->granularity || (!replays && !sg_device_has_peer_pages(device)))
        return 0;
    sg_device_ask(device, SG_ASK_FENCE);
    sg_replay_grow_lock(device);
    sg_device_lock(device);
    bool has = device->accounts.usage.overflow_peer.now && device->growth.neighbour.device == neighbour;
    if (has || replays) {
        sg_device_coalesce_completed_locked(device);
        sg_emit(device, SEGALLOC_RECORD_RETURN_FAR, 0, sg_device_unknown_stream(device), (uint64_t)neighbour, 0);
    }
    sg_device_unlock(device);
    size_t given = has ? sg_device_give_back_place_growing(device, SG_PLACE_PEER) : 0;
    sg_grow_unlock(device);
    return given;
}

size_t sg_core_return_far(struct sg_core *core, int ordinal, int neighbour)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    return device && !core->disabled ? return_from(device, neighbour) : 0;
}

size_t sg_core_return_from(struct sg_core *core, int neighbour)
{
    size_t given = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        given += i == neighbour ? 0 : sg_core_return_far(core, i, neighbour);
    return given;
}

bool sg_core_fix(struct sg_core *core, int ordinal, bool whole)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    return device && device->mode != SG_MODE_PASSTHROUGH && sg_segments_begin(device, whole);
}

void sg_core_share(struct sg_core *core)
{
    /* Set under `setup`, so that a thread which makes a device afterwards sees it. Those that are ready are changed
       one by one. */
    sg_setup_lock(core);
    core->shares = true;
    sg_setup_unlock(core);
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (sg_device_known(core, i))
            (void)sg_core_fix(core, i, /* whole */ true);
}

bool sg_core_left_pages(struct sg_core *core, int ordinal)
{
    const struct sg_device *device = sg_device_known(core, ordinal);
    return device && device->granularity && device->fixed;
}

bool sg_core_has_segments(struct sg_core *core, int ordinal)
{
    const struct sg_device *device = sg_device_known(core, ordinal);
    return device && device->mode == SG_MODE_SEGMENTS;
}

bool sg_core_is_plentiful(struct sg_core *core, int ordinal, size_t bytes)
{
    struct sg_device *device = core->disabled ? NULL : sg_device_get(core, ordinal);
    if (!device || device->mode == SG_MODE_PASSTHROUGH || bytes > sg_device_capacity(device))
        return false;
    sg_device_lock(device);
    bool plentiful = sg_device_is_plentiful_locked(device, sg_roundup(core->conf.roundup_divisions, bytes));
    sg_device_unlock(device);
    return plentiful;
}

void sg_core_poll(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (device && device->granularity && !core->disabled)
        sg_device_ask(device, SG_ASK_FENCE);
}

void sg_core_passthrough(struct sg_core *core, int ordinal, CUdeviceptr address, size_t bytes)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (!device)
        return;
    sg_count(device, SG_STAT_passed_on, 1);
    sg_count(device, SG_STAT_passed_on_bytes, bytes);
    sg_device_lock(device);
    if (device->fixed)
        sg_segments_given_out_locked(device->fixed, address, bytes);
    sg_emit(device, SEGALLOC_RECORD_PASSED_ON, 0, 0, 0, bytes);
    sg_device_unlock(device);
}

void sg_core_asked(struct sg_core *core, int ordinal, unsigned times)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (device)
        sg_count(device, SG_STAT_questions, times);
}

void sg_core_pin(struct sg_core *core, CUdeviceptr address, size_t bytes)
{
    const struct sg_range *range = sg_core_range_at(core, address);
    if (!range || bytes == 0)
        return;
    struct sg_device *device = range->device;
    struct sg_region *region = range->region;
    sg_device_lock(device);
    /* The range may reach beyond the region, or beyond all addresses: its end is bounded before it is added up. */
    uint64_t page_bytes = sg_region_page_bytes(region), offset = address - range->begin;
    uint64_t first = offset / page_bytes, rest = bytes < UINT64_MAX - offset ? bytes : UINT64_MAX - offset;
    uint64_t last = (offset + rest - 1) / page_bytes;
    last = last < region->pages ? last : region->pages - 1;
    sg_device_pin_locked(device, region, (uint32_t)first, first <= last ? (uint32_t)(last - first + 1) : 0);
    sg_device_unlock(device);
}

/* Pins all pages of a region that have memory, run by run, so that each run has one record. */
static bool pin_region_locked(struct sg_device *device, struct sg_region *region) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    bool any = false;
    for (uint32_t page = 0; page < region->pages; page++) {
        uint32_t first = page;
        while (page < region->pages && sg_page_is_mapped(region->memory.handle[page]))
            page++;
        if (page > first)
            sg_device_pin_locked(device, region, first, page - first);
        any |= page > first;
    }
    return any;
}

bool sg_core_pin_all(struct sg_core *core)
{
    bool any = false;
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        struct sg_device *device = sg_device_known(core, i);
        if (!device)
            continue;
        sg_device_lock(device);
        for (uint32_t k = 0; k < device->regions.count; k++)
            any |= pin_region_locked(device, device->regions.region[k]);
        sg_device_unlock(device);
    }
    return any;
}

void sg_core_disable(struct sg_core *core)
{
    atomic_store_explicit(&core->disabled, true, memory_order_relaxed);
}

void sg_core_enable(struct sg_core *core)
{
    atomic_store_explicit(&core->disabled, false, memory_order_relaxed);
}

bool sg_core_is_free(struct sg_core *core)
{
    bool is = sg_lock_comes_free(&core->setup);
    for (int i = 0; i < SG_DEVICES_MAX && is; i++)
        is = !core->device[i] || sg_lock_comes_free(&core->device[i]->lock);
    return is;
}

/* fork() copies the locks as they are. Each device's `lock` is taken in the order of ordinals and held while the process
   is copied. So no books are half changed in the child. `grow` and `asking` are not taken: their holders may be in the
   driver for long. In the child all locks are made anew, and the core answers nothing that would need the
   driver. */
SG_UNCHECKED_LOCKS uint64_t sg_core_fork_prepare(struct sg_core *core)
{
    uint64_t taken = 0;
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        if (!core->device[i])
            continue;
        sg_device_lock(core->device[i]);
        taken |= UINT64_C(1) << i;
    }
    return taken;
}

SG_UNCHECKED_LOCKS void sg_core_fork_parent(struct sg_core *core, uint64_t devices)
{
    for (int i = SG_DEVICES_MAX - 1; i >= 0; i--)
        if (devices >> i & 1)
            sg_device_unlock(core->device[i]);
}

void sg_core_fork_child(struct sg_core *core)
{
    sg_core_disable(core);
    sg_lock_init(&core->setup, SG_RANK_SETUP, 0);
    for (int i = 0; i < SG_DEVICES_MAX; i++)
        if (core->device[i])
            sg_device_init_locks(core->device[i]);
}

sg_slot sg_core_slot(struct sg_core *core, int ordinal, const struct sg_stream_id *id)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (!device || !device->granularity)
        return 0;
    sg_device_lock(device);
    sg_slot slot = sg_clocks_follow(&device->clocks, id);
    sg_device_unlock(device);
    return slot;
}

void sg_core_slot_gone(struct sg_core *core, int ordinal, sg_slot slot)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (device && slot && slot < SG_SLOTS)
        sg_fences_end_slot(device, slot);
}

bool sg_core_take_aliased(struct sg_core *core, int device, sg_slot slot)
{
    /* The plain look comes first, since a launch asks each time and there is hardly ever anything to take. */
    struct sg_device *its = atomic_load_explicit(&core->device[device], memory_order_acquire);
    uint64_t bit = UINT64_C(1) << slot;
    return its && slot && atomic_load_explicit(&its->aliases.slots, memory_order_relaxed) & bit &&
           atomic_fetch_and(&its->aliases.slots, ~bit) & bit;
}
