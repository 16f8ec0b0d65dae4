#include "apply.h"

#include "core/search/take.h"
#include "core/segments/fixed_segments.h"
#include "core/start.h"
#include "core/state/access.h"
#include "core/state/accounts.h"
#include "core/state/locks.h"
#include "core/state/outside_bytes.h"
#include "core/state/pins.h"
#include "core/streams/pending_frees.h"

/* Pins pages by region and number. A trace may name pages that this core, under other settings, does not have. */
static void apply_pin_locked(struct sg_device *device, uint64_t first, uint64_t pages) SG_REQUIRES(lock)
{
    uint64_t index = first >> SG_PIN_REGION_SHIFT, page = first & UINT32_MAX;
    struct sg_region *region = index < device->regions.count ? device->regions.region[index] : NULL;
    if (region && page < region->pages && pages <= region->pages - page)
        sg_device_pin_locked(device, region, (uint32_t)page, (uint32_t)pages);
}

static void apply_record_locked(struct sg_device *device, const struct segalloc_trace_record *record) SG_REQUIRES(lock)
{
    switch (record->kind) {
    case SEGALLOC_RECORD_DONE:
        if (device->pending.awaits_all.first)
            sg_pending_complete_locked(device, sg_slot_bit(0),
                device->regions.extents.extent[device->pending.awaits_all.first].seq);
        break;
    case SEGALLOC_RECORD_MARK:
        sg_clocks_fenced(&device->clocks, record->id, record->size);
        break;
    case SEGALLOC_RECORD_PRESSURE:
        sg_device_note_outside_locked(device, record->size);
        break;
    case SEGALLOC_RECORD_MERGE:
        sg_device_coalesce_completed_locked(device);
        sg_device_drain_quick_lists_locked(device);
        break;
    case SEGALLOC_RECORD_COST:
        if (record->id < SG_COST_CALLS)
            device->accounts.cost[record->id] = (struct sg_cost){(uint32_t)(record->size >> 32), (uint32_t)record->size};
        break;
    case SEGALLOC_RECORD_PEERS:
        sg_device_set_peers_locked(device, record->size);
        break;
    case SEGALLOC_RECORD_PIN:
        apply_pin_locked(device, record->id, record->size);
        break;
    case SEGALLOC_RECORD_CONTEXT_GONE:
        if (device->fixed)
            sg_segments_forget_locked(device->fixed, (CUcontext)(uintptr_t)record->id);
        break;
    default:
        break;
    }
}

void sg_core_apply(struct sg_core *core, int ordinal, const struct segalloc_trace_record *record)
{
    bool makes = record->kind == SEGALLOC_RECORD_COST || record->kind == SEGALLOC_RECORD_PEERS; /* of a device's start */
    struct sg_device *device = makes ? sg_device_get(core, ordinal) : sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_device_lock(device);
    apply_record_locked(device, record);
    sg_device_unlock(device);
}
