/* Three announcements, and what follows from each. A context that comes costs a lock once. One that may end waits
   until nobody asks about its events. One that is gone is dropped from the list first, so that no call can find it.
   Then each device drops its fences, its streams, and last its blocks. Blocks stand on one device only, the context's
   own. */
#include "core/contexts.h"

#include "core/segments/fixed_segments.h"
#include "core/start.h"
#include "core/state/access.h"
#include "core/state/accounts.h"
#include "core/state/locks.h"
#include "core/state/mappings.h"
#include "core/streams/pending_frees.h"

void sg_core_context_seen(struct sg_core *core, int ordinal, CUcontext context)
{
    if (sg_context_list_find(&core->contexts, context) >= 0)
        return;
    sg_setup_lock(core);
    sg_context_list_add(&core->contexts, ordinal, context);
    sg_setup_unlock(core);
}

void sg_core_context_forget(struct sg_core *core, CUcontext context)
{
    sg_setup_lock(core);
    sg_context_list_remove(&core->contexts, context);
    sg_setup_unlock(core);
}

void sg_core_context_ending(struct sg_core *core, CUcontext context, bool ending)
{
    sg_setup_lock(core);
    sg_context_list_set_ending(&core->contexts, context, ending);
    sg_setup_unlock(core);
    /* Each device has events over each context. Whoever asks about them holds `asking`, so taking it once waits for
       him. */
    for (int i = 0; ending && i < SG_DEVICES_MAX; i++) {
        struct sg_device *device = atomic_load_explicit(&core->device[i], memory_order_acquire);
        if (device) {
            sg_asking_lock(device);
            sg_asking_unlock(device);
        }
    }
}

/* VMM mappings outlive contexts. So the end of a context is carried out here, as for plain cuMemAlloc memory. Its
   blocks are free, and so is what was pending on its events. */
void sg_core_context_gone(struct sg_core *core, int ordinal, CUcontext context)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    sg_core_context_forget(core, context);
    /* Other devices have events and streams of it too, but no blocks. */
    for (int i = 0; context && i < SG_DEVICES_MAX; i++) {
        struct sg_device *other = atomic_load_explicit(&core->device[i], memory_order_acquire);
        if (!other || other == device)
            continue;
        sg_device_lock(other);
        sg_pending_forget_locked(other, context);
        sg_device_unlock(other);
    }
    if (!device)
        return;
    sg_device_lock(device);
    sg_pending_forget_locked(device, context);
    for (uint32_t i = 0; i < device->regions.count; i++)
        sg_device_release_all_locked(device, device->regions.region[i], context);
    sg_device_unlock(device);
    if (device->fixed)
        sg_segments_context_gone(device, context);
}

CUresult sg_core_peer_access(struct sg_core *core, int ordinal, int peer, bool enable)
{
    struct sg_device *device = sg_device_get(core, ordinal);
    if (!device || peer < 0 || peer >= SG_DEVICES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    /* Under `grow` no page comes or goes: pages mapped before get access here, later ones where they are mapped. */
    sg_grow_lock(device);
    sg_device_lock(device);
    sg_device_set_peers_locked(device,
        enable ? device->access.peers | UINT64_C(1) << peer : device->access.peers & ~(UINT64_C(1) << peer));
    sg_device_unlock(device);
    /* Only the holder of `grow` changes which pages are mapped, so the handles may be walked without `lock`. */
    const struct sg_regions *regions = sg_device_regions_growing(device);
    for (uint32_t i = 0; enable && i < regions->count; i++) {
        const struct sg_region *region = regions->region[i];
        uint64_t page_bytes = sg_region_page_bytes(region);
        for (uint32_t page = 0; page < region->pages; page++) {
            uint32_t end = page;
            while (end < region->pages && sg_page_is_mapped(region->memory.handle[end]))
                end++;
            if (end > page && result == CUDA_SUCCESS) {
                sg_count(device, SG_STAT_calls_set_access, 1);
                sg_count(device, SG_STAT_handles_set_access, (end - page) * sg_mappings_devices(device));
                result = sg_pages_set_access(&device->pages, region->base + page * page_bytes,
                    (end - page) * page_bytes, sg_device_access_growing(device)->peers);
            }
            page = end;
        }
    }
    sg_grow_unlock(device);
    return result;
}
