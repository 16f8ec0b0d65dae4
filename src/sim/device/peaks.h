/* The most that this process has held of each device, in a file for whoever has started it (the setting peaks=FOLDER). The
   file is there from cuInit on, and open until the process ends, however it ends. It tells of processes too that no library
   is preloaded into.

   An example. A child with an empty environment but for SEGALLOC_SIM takes 700 MiB of device 0: 734003200 is in row 0. */
#ifndef SIM_PEAKS_H
#define SIM_PEAKS_H

#include <stdbool.h>
#include <stdint.h>

/* How the process came to its end. A shell may hide that from whoever started it. */
enum sim_end {
    SIM_END_IS_NOT_KNOWN, /* it goes on, or ended by a signal, by _exit() or by exec */
    SIM_END_IS_GOOD,
    SIM_END_IS_AN_ERROR
};

/* The folder's file PID-N.peaks; N is 0 but where a process of that number had one before (it has called exec). Managed memory
   is not in `bytes`: the driver moves it to the host where a device is full. */
struct sim_peaks {
    _Atomic uint64_t bytes[16]; /* by the machine's index of the device */
    _Atomic uint64_t served;    /* 1: libsegalloc.so is in the process */
    _Atomic uint64_t end;       /* enum sim_end */
};

struct sim_device;
/* Makes the file, if the settings name a folder. False after a line on stderr. */
bool sim_peaks_start(void);
/* Locked. After memory of the device was taken. */
void sim_peaks_note(const struct sim_device *device);

#endif
