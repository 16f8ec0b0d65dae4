#include "api/device_start.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/card.h"
#include "device/device.h"
#include "device/host.h"
#include "device/peaks.h"
#include "memory/pool.h"
#include "space/arena.h"

static CUresult device_start(struct sim_device *device, int ordinal, int index)
{
    char name[32];
    snprintf(name, sizeof name, "segalloc-sim-gpu%d", index);
    device->ordinal = ordinal;
    device->index = index;
    uint64_t quota = sim.config.quota_bytes & ~(uint64_t)(SIM_GRANULE - 1);
    device->bytes = quota && quota < sim.config.bytes ? quota : sim.config.bytes;
    device->kept = sim.config.keeps && device->bytes > sim.config.model->kept ? sim.config.model->kept : 0;
    device->bytes -= device->kept;
    device->fd = memfd_create(name, MFD_CLOEXEC);
    /* Offsets are never used twice, so that pages made one after another lie one after another and the kernel can
       merge their mappings; the file is sparse, what lies behind is only what is in use. */
    if (device->fd < 0 || ftruncate(device->fd, (off_t)1 << 62) != 0) {
        fprintf(stderr, "segalloc simulator: no memory file for device %d: %s\n", index, strerror(errno));
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    device->arena = sim_arena_new(device, device->bytes);
    return device->arena ? sim_pool_start(device) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_devices_start(const int *index, int count)
{
    sim_lock();
    CUresult result = sim_peaks_start() && sim_host_start() ? sim_card_start() : CUDA_ERROR_OPERATING_SYSTEM;
    for (int i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = device_start(&sim.devices[i], i, index[i]);
    sim.device_count = result == CUDA_SUCCESS ? count : 0;
    sim_unlock();
    return result;
}
