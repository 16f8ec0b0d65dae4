/* A device's life: probing, regions, access rights, and the accounts that every operation keeps. */
#include "device.h"

#include <string.h>

#include "fixed_segments.h"
#include "remap/mapping_limit.h"
#include "meta.h"
#include "replay_steps.h"

void sg_usage_derive_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t whole = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        whole += (uint64_t)(region->lookup.whole_free + region->quick.whole_deferred) * region->page_units;
    }
    whole <<= SG_UNIT_SHIFT;
    uint64_t stranded = usage->reserved.now - usage->active.now;
    sg_gauge_set(&usage->stranded, stranded);
    sg_gauge_set(&usage->mappings, sg_mappings_now_locked(device));
    sg_gauge_set(&usage->inactive_split, stranded - whole);
}

uint64_t sg_device_idle_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t idle = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        idle += ((uint64_t)sg_region_idle_locked(region) * region->page_units) << SG_UNIT_SHIFT;
    }
    return idle;
}

void sg_device_count_pages_locked(struct sg_device *device, struct sg_region *region, int64_t pages)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t count = (uint32_t)(pages < 0 ? -pages : pages); /* of a region's */
    uint64_t bytes = count * sg_region_page_bytes(region);
    bool small = device->regions.kind[region->index] == SG_KIND_SMALL;
    struct sg_usage *usage = &device->accounts.usage;
    if (pages >= 0) {
        region->memory.mapped += count;
        sg_gauge_add(&usage->reserved, bytes);
        sg_gauge_add(&usage->pages, count);
        if (small)
            sg_gauge_add(&usage->small_reserved, bytes);
    } else {
        region->memory.mapped -= count;
        sg_gauge_sub(&usage->reserved, bytes);
        sg_gauge_sub(&usage->pages, count);
        if (small)
            sg_gauge_sub(&usage->small_reserved, bytes);
    }
}

void sg_device_note_refusal_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    SG_ASSERT_HELD(&device->lock);
    device->room.refusals += device->growth.second_try;
}

_Static_assert((int)SG_PAGES_DEVICES == (int)SG_DEVICES_MAX && (int)SG_PAGES_GRANULE_LEAST == (int)SG_UNIT,
    "by both layers");

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

SG_UNCHECKED_LOCKS static enum sg_device_mode choose_mode_in_setup(struct sg_device *device) SG_REQUIRES(setup)
{
    SG_ASSERT_HELD(&device->core->setup);
    const struct sg_core *core = device->core;
    size_t total = 0;
    if (core->conf.backend != SG_BACKEND_NATIVE ||
        sg_core_driver(core)->device_total(&total, device->ordinal) != CUDA_SUCCESS || total == 0 ||
        total > SEGALLOC_TRACE_DEVICE_MOST) /* so sums of what is held, asked for and used by others never wrap */
        return SG_MODE_PASSTHROUGH;
    device->total_bytes = total;
    device->capacity_bytes = sg_conf_limit(&core->conf, total);
    bool expands = core->conf.expandable_segments && core->conf.ipc != SG_IPC_ALWAYS;
    /* a driver that fails once may have been busy */
    if (expands && (sg_pages_probe(&device->pages, core->plain_pages, &device->granularity) ||
                       sg_pages_probe(&device->pages, core->plain_pages, &device->granularity))) {
        sg_mappings_size_pages(device);
        return SG_MODE_EXPANDABLE;
    }
    device->fixed = sg_segments_create(device);
    return device->fixed ? SG_MODE_SEGMENTS : SG_MODE_PASSTHROUGH;
}

/* Measures what the driver's calls cost, where the device has room for that. It is being made ready. */
SG_UNCHECKED_LOCKS static void measure_cost_in_setup(struct sg_device *device) SG_REQUIRES(setup)
{
    SG_ASSERT_HELD(&device->core->setup);
    uint64_t (*now_ns)(void) = device->core->callbacks.measure_ns, page = device->granularity;
    if (!now_ns || device->capacity_bytes / SG_COST_SHARE < SG_COST_PAGES * page ||
        !sg_cost_measure(&device->pages, page, now_ns, device->accounts.cost))
        return;
    for (int call = 0; call < SG_COST_CALLS; call++)
        sg_emit(device, SEGALLOC_RECORD_COST, 0, sg_device_unknown_stream(device), (uint64_t)call,
            (uint64_t)device->accounts.cost[call].call_ns << 32 | device->accounts.cost[call].handle_ns);
}

SG_UNCHECKED_LOCKS struct sg_device *sg_device_get(struct sg_core *core, int ordinal)
{
    if (ordinal < 0 || ordinal >= SG_DEVICES_MAX)
        return NULL;
    struct sg_device *device = atomic_load_explicit(&core->device[ordinal], memory_order_acquire);
    if (device || atomic_load_explicit(&core->disabled, memory_order_relaxed))
        return device;
    sg_setup_lock(core);
    device = atomic_load_explicit(&core->device[ordinal], memory_order_relaxed);
    if (!device && (device = sg_meta_map(sizeof *device))) {
        device->core = core;
        device->ordinal = ordinal;
        sg_device_init_locks(device);
        device->pages = (struct sg_pages){.driver = core->driver,
            .ordinal = ordinal,
            .errors = &device->accounts.counter[SG_STAT_vmm_errors]};
        device->clocks = (struct sg_stream_clocks){.seq = (uint64_t)ordinal << 56,
            .observer = &core->observer,
            .unknown_stream = sg_device_unknown_stream(device),
            .slot_streams = sg_device_slot_stream(device, 0),
            .ordinal = (uint64_t)ordinal};
        device->mode = sg_extents_init(&device->regions.extents) ? choose_mode_in_setup(device) : SG_MODE_PASSTHROUGH;
        sg_extents_guard(&device->regions.extents, &device->lock);
        sg_cost_assume(device->accounts.cost);
        sg_emit(device, SEGALLOC_RECORD_DEFINE_DEVICE, 0, (uint32_t)ordinal, device->granularity, device->total_bytes);
        if (ordinal > 0)
            sg_emit(device, SEGALLOC_RECORD_DEFINE_STREAM, 0, sg_device_unknown_stream(device), 0, (uint64_t)ordinal);
        if (device->mode == SG_MODE_EXPANDABLE && !core->replay)
            measure_cost_in_setup(device);
        if (device->mode != SG_MODE_PASSTHROUGH && (core->shares || core->conf.ipc == SG_IPC_ALWAYS))
            (void)sg_segments_begin(device, /* whole */ true); /* where it fails, handles are refused */
        atomic_store_explicit(&core->device[ordinal], device, memory_order_release);
    }
    sg_setup_unlock(core);
    return device;
}

/* Blocks of the small region may be one unit long; those of the others are longer than SG_SMALL_BYTES. A hole lies
   between free ranges too, so a bucket is no longer than a page either. */
static uint32_t bucket_shift_of(enum sg_region_kind kind, uint64_t page_bytes)
{
    uint64_t least = page_bytes < SG_SMALL_BYTES ? page_bytes : SG_SMALL_BYTES;
    return kind == SG_KIND_SMALL ? 0 : 63 - (uint32_t)__builtin_clzll(least) - SG_UNIT_SHIFT;
}

static bool publish_range(struct sg_core *core, struct sg_device *device, struct sg_region *region, uint64_t bytes,
    bool huge)
{
    sg_setup_lock(core);
    uint32_t count = atomic_load_explicit(&core->range_count, memory_order_relaxed);
    bool room = count < sizeof core->range / sizeof *core->range;
    if (room) {
        core->range[count] = (struct sg_range){region->base, region->base + bytes, device, region, huge};
        atomic_store_explicit(&core->range_count, count + 1, memory_order_release);
    }
    sg_setup_unlock(core);
    return room;
}

/* Gives the addresses of a huge block that is gone to one of `bytes`, which is one page. False: there are none. */
static bool reuse_huge(struct sg_device *device, uint64_t bytes)
{
    bool done = false;
    sg_device_lock(device);
    for (uint32_t i = 0; i < device->regions.count && !done; i++) {
        struct sg_region *region = device->regions.region[i];
        bool empty = device->regions.kind[i] == SG_KIND_HUGE && sg_region_is_hole_locked(region);
        done = empty && region->reserved >= bytes &&
               sg_region_remake_locked(region, bytes, bucket_shift_of(SG_KIND_HUGE, bytes));
    }
    if (done)
        sg_emit_step_locked(device, SEGALLOC_TURN_REUSE, bytes);
    sg_device_unlock(device);
    return done;
}

/* Reserves addresses for a region: *bytes of them, or half as many and so on, but at least `least`. *bytes: how
   many. */
static CUresult reserve_addresses(struct sg_device *device, uint64_t least, uint64_t step, uint64_t alignment,
    uint64_t *bytes, CUdeviceptr *ret)
{
    for (;;) {
        sg_count(device, SG_STAT_calls_reserve, 1);
        CUresult result = sg_pages_reserve(&device->pages, *bytes, alignment, ret);
        if (result == CUDA_SUCCESS || *bytes == least)
            return sg_pages_answered(&device->pages, result);
        *bytes = *bytes / 2 > least ? round_up(*bytes / 2, step) : least;
    }
}

/* Makes a region of what was reserved, of `bytes` in pages of `page`. NULL: no host memory, or too many there are. */
static struct sg_region *make_region(struct sg_device *device, enum sg_region_kind kind, CUdeviceptr base,
    uint64_t bytes, uint64_t page)
{
    bool huge = kind == SG_KIND_HUGE;
    struct sg_region *region = sg_meta_map(sizeof *region);
    sg_device_lock(device);
    bool made = region && sg_region_init_locked(region, &device->regions.extents, base, huge ? page : bytes, page,
                              bucket_shift_of(kind, page));
    sg_device_unlock(device);
    if (made && publish_range(device->core, device, region, bytes, huge))
        return region;
    if (made) {
        sg_device_lock(device);
        sg_region_unmake_locked(region);
        sg_device_unlock(device);
    }
    sg_meta_unmap(region, sizeof *region);
    return NULL;
}

static void append_region_locked(struct sg_device *device, enum sg_region_kind kind, struct sg_region *region,
    uint64_t bytes) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t index = device->regions.count;
    region->index = index;
    region->owned.clocks = &device->clocks;
    region->reserved = bytes;
    device->regions.extents.extent[region->first].region = index;
    device->regions.region[index] = region;
    device->regions.kind[index] = (uint8_t)kind;
    device->regions.count = index + 1;
    sg_gauge_add(&device->accounts.usage.segments, 1);
}

/* The outcome of a turn for a region that was not made, in place of its bytes. The driver gave no addresses, or the
   host no memory for its books. */
enum { NO_ADDRESSES = 0, NO_BOOKS = 1 };

/* How many bytes of addresses a region is to have: as the trace of a replay says where possible, else as many as are
   wanted. */
static uint64_t replayed_bytes(const struct segalloc_trace_record *replayed, uint64_t least, uint64_t most,
    uint64_t step, uint64_t wanted)
{
    uint64_t bytes = sg_replay_step_outcome(replayed, SEGALLOC_TURN_REGION, wanted);
    bool fits = bytes >= least && bytes <= most && bytes % step == 0;
    return fits || bytes == NO_ADDRESSES || bytes == NO_BOOKS ? bytes : wanted;
}

CUresult sg_device_add_region_growing(struct sg_device *device, enum sg_region_kind kind, uint64_t bytes)
{
    SG_ASSERT_HELD(&device->growth.grow);
    bool huge = kind == SG_KIND_HUGE;
    uint64_t page = huge ? round_up(bytes, device->granularity) : sg_device_regions_growing(device)->page_bytes[kind];
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    if (huge && sg_replay_step_is(replayed, SEGALLOC_TURN_REUSE) && reuse_huge(device, page))
        return CUDA_SUCCESS;
    /* Twice the memory leaves room to place anything besides what stays; the small region rarely holds much. Every huge
       block fits where one has been. */
    uint64_t want = huge                      ? sg_device_capacity(device)
                    : kind == SG_KIND_SMALL ? device->total_bytes / SG_SMALL_REGION_SHARE
                                              : 2 * device->total_bytes;
    uint64_t step = huge ? device->granularity : page, most = ((uint64_t)INT32_MAX << SG_UNIT_SHIFT) / step * step;
    want = round_up(want > bytes ? want : bytes, step);
    want = want < most ? want : most;
    if (sg_device_regions_growing(device)->count == SG_REGIONS_MAX || want < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr base = 0;
    want = replayed_bytes(replayed, round_up(bytes, step), most, step, want);
    CUresult result = want == NO_BOOKS ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
    if (want > NO_BOOKS)
        result = reserve_addresses(device, round_up(bytes, step), step,
            page == device->granularity ? 0 : device->granularity, &want, &base);
    bool refused = result != CUDA_SUCCESS && want != NO_BOOKS;
    struct sg_region *region = result == CUDA_SUCCESS ? make_region(device, kind, base, want, page) : NULL;
    if (result == CUDA_SUCCESS && !region) {
        sg_core_driver(device->core)->address_free(base, want);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_device_lock(device);
    if (region)
        append_region_locked(device, kind, region, want);
    else if (refused)
        sg_device_note_refusal_locked(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_REGION, region ? want : refused ? NO_ADDRESSES : NO_BOOKS);
    sg_device_unlock(device);
    return refused && !sg_driver_is_sticky(result) ? CUDA_ERROR_NOT_SUPPORTED : result;
}

bool sg_device_coalesce_completed_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    bool any = device->pending.awaits_streams.first && device->pending.awaits_streams_version != device->clocks.version;
    if (any)
        sg_pending_settle_locked(device);
    for (uint32_t i = 0; i < device->regions.count; i++)
        any = sg_region_coalesce_completed_locked(device->regions.region[i]) || any;
    return any;
}

bool sg_device_drain_quick_lists_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    bool any = false;
    for (uint32_t i = 0; i < device->regions.count; i++)
        any = sg_region_drain_quick_lists_locked(device->regions.region[i]) || any;
    return any;
}

/* The quick looks. Where lists keep few blocks of very many and there is room, a page is made as they are joined. */
static inline uint32_t take_free_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < device->regions.count; i++) {
        if (!sg_device_suits_locked(device, i, want->kind, want->units))
            continue;
        uint32_t extent = sg_region_take_locked(device->regions.region[i], want->units, want->end, want->slot);
        if (!extent &&
            (want->kind != SG_KIND_SMALL ||
                device->regions.region[i]->quick.deferred > device->regions.extents.live / SG_QUICK_SHARE ||
                !sg_device_is_low_pressure_locked(device, (uint64_t)want->units << SG_UNIT_SHIFT)) &&
            sg_region_drain_quick_lists_locked(device->regions.region[i]))
            extent = sg_region_take_locked(device->regions.region[i], want->units, want->end, want->slot);
        if (extent)
            return extent;
    }
    return 0;
}

uint32_t sg_device_take_locked(struct sg_device *device, const struct sg_want *want)
{
    SG_ASSERT_HELD(&device->lock);
    if (device->pending.awaits_streams.first)
        sg_pending_settle_locked(device);
    return take_free_locked(device, want);
}

static uint32_t take_window_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t extent = 0;
    for (uint32_t i = 0; i < device->regions.count && !extent; i++)
        if (sg_device_suits_locked(device, i, want->kind, want->units))
            extent = sg_region_take_window_locked(device->regions.region[i], want->units, want->slot);
    return extent;
}

uint32_t sg_device_take_thoroughly_locked(struct sg_device *device, const struct sg_want *want)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t extent = sg_device_take_locked(device, want);
    if (!extent)
        extent = take_window_locked(device, want);
    if (!extent && sg_pending_inherit_locked(device, want->slot)) {
        extent = take_free_locked(device, want);
        if (!extent)
            extent = take_window_locked(device, want);
    }
    return extent;
}

uint32_t sg_device_take_anywhere_locked(struct sg_device *device, const struct sg_want *want)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t extent = 0;
    /* a small one would take 64 KiB among them */
    bool large = want->kind == SG_KIND_REGULAR;
    for (uint32_t i = 0; i < device->regions.count && !extent && large; i++)
        if (device->regions.kind[i] != SG_KIND_HUGE)
            extent = sg_region_take_locked(device->regions.region[i], want->units, SG_END_LOW, want->slot);
    return extent;
}

bool sg_device_is_shared_locked(const struct sg_device *device, sg_slot slot)
{
    SG_ASSERT_HELD(&device->lock);
    for (uint32_t i = 0; i < device->regions.count; i++)
        if (device->regions.region[i]->owned.owners & ~(UINT64_C(1) << slot | 1))
            return true;
    return false;
}

enum { CONTEXT_SHIFT = 32 }; /* of a DEFINE_STREAM record */

/* Indices are unique over all devices; the first of each device stands for a stream that is not known. Fixed segments
   have a pool for each context, so there a stream of another context is another one. */
uint32_t sg_device_stream_locked(struct sg_device *device, const struct sg_tag *tag)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t unknown = sg_device_unknown_stream(device), i = 0;
    uint32_t context = device->fixed ? sg_segments_pool_locked(device->fixed, tag->context) : 0;
    CUstream stream = tag->has_stream ? tag->stream : NULL;
    if (tag->slot)
        return sg_device_slot_stream(device, tag->slot);
    if (!tag->has_stream && !context)
        return unknown;
    while (i < device->streams.count && (device->streams.stream[i] != stream || device->streams.context[i] != context))
        i++;
    if (i == SG_STREAMS_MAX)
        return unknown;
    if (i == device->streams.count) {
        device->streams.context[device->streams.count] = context;
        device->streams.stream[device->streams.count++] = stream;
        sg_emit(device, SEGALLOC_RECORD_DEFINE_STREAM, 0, unknown + i + 1, (uint64_t)(uintptr_t)stream,
                (uint64_t)context << CONTEXT_SHIFT | (uint64_t)device->ordinal);
    }
    return unknown + i + 1;
}

/* What is noted of a block beyond its bounds: its stream, its site and its record. */
static __attribute__((noinline)) CUdeviceptr describe_block_locked(struct sg_device *device, uint32_t id,
    CUdeviceptr address, const struct sg_tag *tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    if (tag->has_stream || tag->slot || device->ordinal)
        extent->stream = sg_device_stream_locked(device, tag);
    if (tag->slot)
        extent->idle_before = sg_clocks_idle_before(&device->clocks, tag->slot, extent->alloc_seq);
    sg_extent_set_site_locked(&device->regions.extents, id, tag->site, tag->phase);
    sg_emit(device, SEGALLOC_RECORD_ALLOCATE, tag->torch ? SEGALLOC_FLAG_TORCH : 0, extent->stream, address,
        extent->requested);
    return address;
}

CUdeviceptr sg_device_hand_out_locked(struct sg_device *device, uint32_t id, size_t bytes, const struct sg_tag *tag)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    const struct sg_region *region = device->regions.region[extent->region];
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    extent->requested = bytes;
    extent->stream = 0;
    extent->context = (uint64_t)(uintptr_t)tag->context;
    extent->alloc_seq = sg_clocks_tick_locked(device);
    extent->idle_before = 0;
    extent->users_mask = 0;
    sg_usage_allocate(&device->accounts.usage, bytes, rounded, device->regions.kind[extent->region] == SG_KIND_SMALL);
    CUdeviceptr address = sg_region_address(region, extent->begin);
    bool plain = !tag->has_stream && !tag->slot && !device->ordinal && !device->regions.extents.sites && !tag->site &&
                 !tag->phase && !device->core->observer.emit;
    return plain ? address : describe_block_locked(device, id, address, tag);
}

void sg_device_release_locked(struct sg_device *device, uint32_t id, sg_slot owner, uint64_t seq)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_region *region = device->regions.region[extent->region];
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    sg_gauge_sub(&usage->active, rounded);
    if (extent->state == SG_EXTENT_PENDING)
        sg_gauge_sub(&usage->pending, rounded);
    else
        sg_usage_free(usage, extent->requested, rounded, device->regions.kind[extent->region] == SG_KIND_SMALL);
    sg_gauge_set(&usage->stranded, usage->reserved.now - usage->active.now);
    sg_region_release_locked(region, id, owner, seq);
}

void sg_device_suspend_locked(struct sg_device *device, uint32_t id, uint64_t slots, uint64_t seq)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_usage *usage = &device->accounts.usage;
    uint64_t rounded = (uint64_t)extent->size << SG_UNIT_SHIFT;
    sg_usage_free(usage, extent->requested, rounded, device->regions.kind[extent->region] == SG_KIND_SMALL);
    sg_gauge_add(&usage->pending, rounded);
    sg_region_suspend_locked(device->regions.region[extent->region], id);
    sg_pending_push_locked(device, id, slots, seq);
}

void sg_device_record_stream_locked(struct sg_device *device, uint32_t id, sg_slot slot)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extent = &device->regions.extents.extent[id];
    uint32_t stream = slot ? sg_device_slot_stream(device, slot) : sg_device_unknown_stream(device);
    if (extent->users_mask >> slot & 1 || (slot && extent->stream == stream))
        return;
    extent->users_mask |= UINT64_C(1) << slot;
    sg_emit(device, SEGALLOC_RECORD_RECORD_STREAM, 0, stream,
        sg_region_address(device->regions.region[extent->region], extent->begin), 0);
}

void sg_device_release_all_locked(struct sg_device *device, struct sg_region *region, CUcontext context)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_extent *extents = device->regions.extents.extent;
    uint32_t doomed = 0;
    for (uint32_t id = region->first; id; id = extents[id].next) {
        if (extents[id].state == SG_EXTENT_BLOCK && (!context || extents[id].context == (uint64_t)(uintptr_t)context)) {
            extents[id].later = doomed;
            doomed = id;
        }
    }
    while (doomed) {
        uint32_t id = doomed;
        doomed = extents[id].later;
        sg_emit(device, SEGALLOC_RECORD_FREE, SEGALLOC_FLAG_STRICT, extents[id].stream,
            sg_region_address(region, extents[id].begin), extents[id].requested);
        sg_device_release_locked(device, id, 0, 0);
    }
}

uint64_t sg_core_set_limit(struct sg_core *core, int ordinal, uint64_t bytes)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (!device || device->mode == SG_MODE_PASSTHROUGH)
        return 0;
    uint64_t most = sg_conf_limit(&core->conf, device->total_bytes), set = bytes < most ? bytes : most;
    sg_device_lock(device);
    __atomic_store_n(&device->capacity_bytes, set, __ATOMIC_RELAXED); /* sg_device_capacity() reads it meanwhile */
    sg_emit(device, SEGALLOC_RECORD_LIMIT, 0, sg_device_stream_locked(device, &(struct sg_tag){0}), 0, set);
    sg_device_unlock(device);
    return set;
}

uint64_t sg_core_limit(struct sg_core *core, int ordinal)
{
    const struct sg_device *device = sg_device_known(core, ordinal);
    return device ? sg_device_capacity(device) : 0;
}

bool sg_core_is_limited(struct sg_core *core, int ordinal)
{
    const struct sg_device *device = sg_device_known(core, ordinal);
    return device && sg_device_capacity(device) < device->total_bytes;
}
