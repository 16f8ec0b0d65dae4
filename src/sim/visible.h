/* Which of the machine's devices a program sees, and in which order. */
#ifndef SIM_VISIBLE_H
#define SIM_VISIBLE_H

#include "config.h"

/* Reads a value of CUDA_VISIBLE_DEVICES (NULL: it is not set) as NVIDIA's driver does. Fills ret[] with indices of the
   machine's devices, of which the program's device 0 is the first, and returns how many there are.

   The list has indices, or UUIDs, of which the beginning is enough where it names one device. The first item that names
   none ends it: "1,7,0" is device 1 on a machine of two. A device named twice makes all invisible, and so does "". There
   are no parts of devices ("MIG-…"). Source: CUDA C++ Programming Guide, "CUDA Environment Variables". For signs,
   letters behind a number and repeated items it is PyTorch's torch/cuda/__init__.py, which follows the driver
   (_parse_visible_devices(), _transform_uuid_to_ordinals()).

   CUDA_DEVICE_ORDER decides the order of unlike devices. Those of a simulated machine are all alike: the fastest first and
   by their place on the bus are one order. */
int sim_visible(const struct sim_config *config, const char *list, int ret[SIM_DEVICES_MAX]);

/* The index of the machine's device whose UUID begins with these characters of `text`; negative: none does, or several.
   Processes whose card has no name have cards of their own, with UUIDs of their own. A launcher's UUID still means that
   device to what it launches: the halves that say which device it is are compared then. */
int sim_visible_uuid(const struct sim_config *config, const char *text, size_t length);

#endif
