/* The start of devices: their memory file, arena and default pool. */
#ifndef SIM_API_DEVICE_START_H
#define SIM_API_DEVICE_START_H

#include "sim.h"

/* Starts the devices of these indices of the machine, in this order. */
CUresult sim_devices_start(const int *index, int count);

#endif
