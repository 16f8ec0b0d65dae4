/* Devices: those that the program sees, by its number (the ordinal) or by the machine's (the index). With
   CUDA_VISIBLE_DEVICES=2 the program's device 0 is the machine's device 2. */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include "sim.h"

/* Locked; NULL if there is no such device. */
struct sim_device *sim_device(int ordinal);
/* Locked: by the machine's index; NULL if the program does not see it. */
struct sim_device *sim_device_by_index(int index);

#endif
