#include "device/device.h"

struct sim_device *sim_device(int ordinal)
{
    return ordinal >= 0 && ordinal < sim.device_count ? &sim.devices[ordinal] : NULL;
}

struct sim_device *sim_device_by_index(int index)
{
    for (int i = 0; i < sim.device_count; i++)
        if (sim.devices[i].index == index)
            return &sim.devices[i];
    return NULL;
}
