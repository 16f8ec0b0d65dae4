/* The steps of adding a region. It gets addresses of the driver, or those of a huge block that is gone. It gets its
   tables, and its range for lookups without a lock. Its place among the device's regions comes last, and before that
   nothing is placed in it. A step that fails undoes those before it. */
#include "core/state/regions.h"

#include "base/meta.h"
#include "core/state/replay_steps.h"

/* A value rounded up to a multiple of a step. */
static uint64_t regions_round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

void sg_device_note_refusal_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->growth.grow);
    SG_ASSERT_HELD(&device->lock);
    device->room.refusals += device->growth.second_try;
}

/* Blocks of the small region may be one unit long; those of the others are longer than SG_SMALL_BYTES. A hole lies
   between free ranges too, so a bucket is no longer than a page either. */
static uint32_t bucket_shift_of(enum sg_region_kind kind, uint64_t page_bytes)
{
    uint64_t least = page_bytes < SG_SMALL_BYTES ? page_bytes : SG_SMALL_BYTES;
    return kind == SG_KIND_SMALL ? 0 : 63 - (uint32_t)__builtin_clzll(least) - SG_UNIT_SHIFT;
}

/* Adds a range of addresses to those that are looked up. Its count is stored last, so a reader without a lock sees
   whole entries. False: the table is full. */
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

/* Gives the addresses of a block of that purpose that is gone to one of `bytes`, which is one page. False: there are
   none. */
static bool reuse_huge(struct sg_device *device, uint32_t purpose, uint64_t bytes)
{
    bool done = false;
    sg_device_lock(device);
    for (uint32_t i = 0; i < device->regions.count && !done; i++) {
        struct sg_region *region = device->regions.region[i];
        bool empty = device->regions.purpose[i] == purpose && sg_region_is_hole_locked(region);
        done = empty && region->reserved >= bytes &&
               sg_region_remake_locked(region, bytes, bucket_shift_of(sg_purpose_kind(purpose), bytes));
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
        *bytes = *bytes / 2 > least ? regions_round_up(*bytes / 2, step) : least;
    }
}

/* Makes a region of what was reserved, of `bytes` in pages of `page`. NULL: no host memory, or too many there are. */
static struct sg_region *make_region(struct sg_device *device, enum sg_region_kind kind, CUdeviceptr base,
    uint64_t bytes, uint64_t page)
{
    bool huge = sg_kind_has_one_page(kind);
    struct sg_region *region = sg_meta_map(sizeof *region);
    sg_device_lock(device);
    bool made = region && sg_region_init_locked(region, &device->regions.extents, base, huge ? page : bytes, page,
                              bucket_shift_of(kind, page));
    sg_device_unlock(device);
    /* `setup` comes before `lock`, so the range is published between two sections. */
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

/* Adds a region to its device: from here on blocks may stand in it. */
static void append_region_locked(struct sg_device *device, uint32_t purpose, struct sg_region *region, uint64_t bytes)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint32_t index = device->regions.count;
    region->index = index;
    region->owned.clocks = &device->clocks;
    region->reserved = bytes;
    device->regions.extents.extent[region->first].region = index;
    device->regions.region[index] = region;
    device->regions.purpose[index] = (uint16_t)purpose;
    device->regions.count = index + 1;
    sg_gauge_add(&device->accounts.usage.segments, 1);
}

/* The outcome of the replay step for a region that was not made, in place of its bytes. The driver gave no addresses,
   or the host no memory for its books. */
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

CUresult sg_device_add_region_growing(struct sg_device *device, uint32_t purpose, uint64_t bytes)
{
    SG_ASSERT_HELD(&device->growth.grow);
    enum sg_region_kind kind = sg_purpose_kind(purpose);
    bool huge = sg_kind_has_one_page(kind);
    uint64_t page = huge ? regions_round_up(bytes, device->granularity)
                         : sg_device_regions_growing(device)->page_bytes[kind];
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    if (huge && sg_replay_step_is(replayed, SEGALLOC_TURN_REUSE) && reuse_huge(device, purpose, page))
        return CUDA_SUCCESS;
    /* Twice the memory leaves room to place anything besides what stays; the small region rarely holds much. Every huge
       block fits where one has been. */
    uint64_t want = huge                    ? sg_device_capacity(device)
                    : kind == SG_KIND_SMALL ? device->total_bytes / SG_SMALL_REGION_SHARE
                                            : 2 * device->total_bytes;
    uint64_t step = huge ? device->granularity : page, most = ((uint64_t)INT32_MAX << SG_UNIT_SHIFT) / step * step;
    want = regions_round_up(want > bytes ? want : bytes, step);
    want = want < most ? want : most;
    if (sg_device_regions_growing(device)->count == SG_REGIONS_MAX || want < bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr base = 0;
    want = replayed_bytes(replayed, regions_round_up(bytes, step), most, step, want);
    CUresult result = want == NO_BOOKS ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
    if (want > NO_BOOKS)
        result = reserve_addresses(device, regions_round_up(bytes, step), step,
            page == device->granularity ? 0 : device->granularity, &want, &base);
    bool refused = result != CUDA_SUCCESS && want != NO_BOOKS;
    struct sg_region *region = result == CUDA_SUCCESS ? make_region(device, kind, base, want, page) : NULL;
    if (result == CUDA_SUCCESS && !region) {
        sg_core_driver(device->core)->address_free(base, want);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    sg_device_lock(device);
    if (region)
        append_region_locked(device, purpose, region, want);
    else if (refused)
        sg_device_note_refusal_locked(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_REGION, region ? want : refused ? NO_ADDRESSES : NO_BOOKS);
    sg_device_unlock(device);
    return refused && !sg_driver_is_sticky(result) ? CUDA_ERROR_NOT_SUPPORTED : result;
}
