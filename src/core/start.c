/* The steps of making a device: it gets its locks and clocks, and a probe decides how it serves. Records define it in
   the trace, the costs of calls are measured, and last it is published. A step that fails makes it a device that
   passes everything on to the driver. So a program never fails because a device could not be served. */
#include "core/start.h"

#include "base/meta.h"
#include "core/segments/fixed_segments.h"
#include "core/state/locks.h"
#include "core/state/mappings.h"
#include "pytorch/caching_allocator.h"

_Static_assert((int)SG_PAGES_DEVICES == (int)SG_DEVICES_MAX && (int)SG_PAGES_GRANULE_LEAST == (int)SG_UNIT,
    "by both layers");

/* Decides which blocks stand in regions. Blocks from some size on may be wanted as one allocation each: those are whole segments
   besides. Without host memory for the segments' books all stand in regions. */
SG_UNCHECKED_LOCKS static void share_out_blocks_in_setup(struct sg_device *device) SG_REQUIRES(setup)
{
    SG_ASSERT_HELD(&device->core->setup);
    struct sg_segments *fixed = device->core->conf.contiguous ? sg_segments_create(device) : NULL;
    if (fixed)
        (void)sg_torch_keep_whole(fixed->torch);
    device->fixed = fixed;
    device->regions.below = fixed ? device->core->conf.contiguous : UINT64_MAX;
}

/* Finds out how a device can be served, and sets its sizes. */
SG_UNCHECKED_LOCKS static enum sg_device_mode choose_mode_in_setup(struct sg_device *device) SG_REQUIRES(setup)
{
    SG_ASSERT_HELD(&device->core->setup);
    const struct sg_core *core = device->core;
    size_t total = 0;
    if (core->conf.backend != SG_BACKEND_NATIVE ||
        sg_core_driver(core)->device_total(&total, device->ordinal) != CUDA_SUCCESS || total == 0 ||
        total > SEGALLOC_TRACE_DEVICE_MOST) /* so that sums of a few such sizes never wrap */
        return SG_MODE_PASSTHROUGH;
    device->total_bytes = total;
    device->capacity_bytes = sg_conf_limit(&core->conf, total);
    bool expands = core->conf.expandable_segments && core->conf.ipc != SG_IPC_ALWAYS;
    /* A driver that fails once may have been busy, so it is probed twice. */
    if (expands && (sg_pages_probe(&device->pages, core->plain_pages, &device->granularity) ||
                       sg_pages_probe(&device->pages, core->plain_pages, &device->granularity))) {
        sg_mappings_size_pages(device);
        share_out_blocks_in_setup(device);
        return SG_MODE_EXPANDABLE;
    }
    device->fixed = sg_segments_create(device);
    return device->fixed ? SG_MODE_SEGMENTS : SG_MODE_PASSTHROUGH;
}

/* Measures the cost of the driver's calls, where the device has room for that: 64 times the pages that it takes
   (SG_COST_SHARE). */
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

/* Takes over the notes of outside memory that are older than the device. */
SG_UNCHECKED_LOCKS static void take_noted_in_setup(struct sg_device *device) SG_REQUIRES(setup)
{
    SG_ASSERT_HELD(&device->core->setup);
    const struct sg_unready *unready = &device->core->unready[device->ordinal];
    device->room.outside = unready->outside;
    device->accounts.counter[SG_STAT_outside_allocs] = unready->outside_allocs;
    device->accounts.counter[SG_STAT_refused] = unready->refused;
    device->accounts.counter[SG_STAT_ooms] = unready->ooms;
}

/* The first look needs no lock: a device that is published is complete. The second, under `setup`, finds the one that
   another thread has made meanwhile. A disabled core makes no new device, since that would call the driver. */
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
        device->growth.neighbour.device = -1;
        device->clocks = (struct sg_stream_clocks){.seq = (uint64_t)ordinal << 56,
            .observer = &core->observer,
            .unknown_stream = sg_device_unknown_stream(device),
            .slot_streams = sg_device_slot_stream(device, 0),
            .ordinal = (uint64_t)ordinal};
        /* The order matters to a replay: the device is defined before its first stream, and both before its costs.
           Only a finished device is published. */
        device->mode = sg_extents_init(&device->regions.extents) ? choose_mode_in_setup(device) : SG_MODE_PASSTHROUGH;
        sg_extents_guard(&device->regions.extents, &device->lock);
        sg_cost_assume(device->accounts.cost);
        sg_emit(device, SEGALLOC_RECORD_DEFINE_DEVICE, 0, (uint32_t)ordinal, device->granularity, device->total_bytes);
        take_noted_in_setup(device);
        if (ordinal > 0 && !core->unready[ordinal].total_bytes)
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
