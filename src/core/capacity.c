/* The capacity is one number that readers take without a lock, so it is stored at once, though always under `lock`. A
   reader may have the old one for one decision more. An allocation that grows then may hold more than a limit that
   was lowered just now. The next one gives it back. */
#include "core/capacity.h"

#include "core/start.h"
#include "core/state/locks.h"
#include "core/state/trace_streams.h"
#include "core/tuning.h"

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

bool sg_core_is_quota(uint64_t total, uint64_t whole)
{
    return total < whole && whole - total > whole / SG_TOTALS_ALIKE;
}
