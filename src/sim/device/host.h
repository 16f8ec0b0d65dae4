/* The host of the first device, as its kernel shows it in files below a folder (the setting host=FOLDER).

   Nouns. A *neighbour* is whoever else takes memory: of the device, or with `integrated` of the host, which is the same
   there. The *group* is the control group of all processes on the card.

   Why. An integrated device and a quota of a control group have an end that the driver does not answer for. The machine
   hangs, or the kernel ends a process. A test shows that nobody comes that far.

   How. The test writes, numbers of bytes:
     neighbour, cache             the neighbour's memory; file caches of the host, which the kernel drops for whoever asks
     group_neighbour              of the group, what others of it have
     sys/fs/cgroup/job/…          memory.max, dmem.max and dmem.min, as a control group has them
   The simulator writes proc/meminfo, proc/self/cgroup, and of the group memory.current and dmem.current. It does so at each change
   of the device's memory, and whenever somebody asks. A process that goes beyond an end is killed, and `killed` says by what.

   An example of 1 GiB with `integrated`. 300 MiB are held and the neighbour has 600, so MemAvailable is 124 MiB. A page of 128
   MiB is given all the same. Then the host has nothing left: the process is killed. */
#ifndef SIM_HOST_H
#define SIM_HOST_H

#include <stdbool.h>
#include <stddef.h>

#include "sim.h"

/* Makes the folders and files. False: that failed. Nothing without the setting. */
bool sim_host_start(void);

/* Locked, here and below. Bytes of a device that its neighbour has. The second is what a driver of an integrated device leaves out
   of what is free besides: file caches. */
uint64_t sim_host_neighbour(const struct sim_device *device);
uint64_t sim_host_cache(const struct sim_device *device);

/* True if a quota forbids `bytes` more on a device of which the group has `used`. */
bool sim_host_forbids(const struct sim_device *device, uint64_t used, uint64_t bytes);

/* Writes the files anew: the group has `used` of a device. Ends the process where an end is passed. */
void sim_host_show(const struct sim_device *device, uint64_t used);

#endif
