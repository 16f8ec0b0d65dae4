#include "mappings.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    ENLARGE_FROM = SG_MAPPINGS_OF_DEVICE / 3 * 2,
    LARGE_MOST = SG_MAPPINGS_OF_DEVICE / 12 /* so many for a device full of large pages */
};

/* For each page at each address. */
static uint64_t devices_with_access(const struct sg_device *device)
{
    return 1 + (uint64_t)__builtin_popcountll(device->peers & ~(UINT64_C(1) << device->ordinal));
}

uint64_t sg_mappings_now(const struct sg_device *device)
{
    uint64_t addresses = 0;
    for (uint32_t i = 0; i < device->region_count; i++)
        addresses += (uint64_t)device->region[i]->mapped + device->region[i]->old;
    return addresses * devices_with_access(device);
}

uint32_t sg_mappings_left(const struct sg_device *device)
{
    if (device->mappings_out)
        return 0;
    uint64_t now = sg_mappings_now(device);
    return now < SG_MAPPINGS_OF_DEVICE ? (uint32_t)((SG_MAPPINGS_OF_DEVICE - now) / devices_with_access(device)) : 0;
}

/* A size of the user's is kept, and pages are enlarged once. */
static void enlarge(struct sg_device *device)
{
    uint64_t page = 2 * device->granularity;
    if (device->core->conf.page_size != SG_AUTO || device->page_bytes[SG_CLASS_REGULAR] != device->granularity)
        return;
    while (device->total_bytes / page * devices_with_access(device) > LARGE_MOST)
        page *= 2;
    device->page_bytes[SG_CLASS_REGULAR] = device->page_bytes[SG_CLASS_CROWD] = page;
}

void sg_mappings_watch(struct sg_device *device)
{
    if (device->page_bytes[SG_CLASS_REGULAR] == device->granularity && sg_mappings_now(device) >= ENLARGE_FROM)
        enlarge(device);
}

/* Which error cuMemSetAccess answers when there are none is not documented: these were seen of it with memory left
   (pytorch#188008, pytorch#192330). */
static bool may_mean_mappings(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_UNKNOWN;
}

bool sg_mappings_refused(struct sg_device *device, CUresult result)
{
    char line[300];
    const struct sg_core *core = device->core;
    if (device->mappings_out || !may_mean_mappings(result))
        return false;
    sg_lock(&device->lock);
    device->mappings_out = device->told_of_mappings = true;
    enlarge(device);
    sg_unlock(&device->lock);
    uint64_t given = sg_device_give_back(device, UINT64_MAX);
    snprintf(line, sizeof line,
        "device %d: the driver maps no more pages (error %d), as when the %d mappings of a machine are out; %" PRIu64
        " MiB of idle pages were given back, none gets a second address, and new ones are of %" PRIu64 " MiB",
        device->ordinal, (int)result, SG_MAPPINGS_OF_MACHINE, given >> 20,
        device->page_bytes[SG_CLASS_REGULAR] >> 20);
    if (core->warn && !core->replay)
        core->warn(line);
    return true;
}

void sg_mappings_tell(struct sg_device *device)
{
    char line[200];
    const struct sg_core *core = device->core;
    if (core->conf.page_size != SG_AUTO || device->told_of_mappings || !core->warn || core->replay ||
        device->page_bytes[SG_CLASS_REGULAR] == device->granularity)
        return;
    device->told_of_mappings = true;
    snprintf(line, sizeof line,
        "device %d: more than %d of the %d mappings that a machine has are in use; new pages are of %" PRIu64
        " MiB (page_size_mb sets one size for all)",
        device->ordinal, ENLARGE_FROM, SG_MAPPINGS_OF_MACHINE, device->page_bytes[SG_CLASS_REGULAR] >> 20);
    core->warn(line);
}
