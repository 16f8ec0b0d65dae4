/* The most that this process has held of each device, in a file for whoever has started it (the setting peaks=FOLDER). The
   file is there from cuInit on, and open until the process ends, however it ends. It tells of processes too that no library
   is preloaded into.

   An example. A child with an empty environment but for SEGALLOC_SIM takes 700 MiB of device 0: 734003200 is in row 0. */
#ifndef SIM_PEAKS_H
#define SIM_PEAKS_H

#include <stdbool.h>
#include <stdint.h>

/* How the process came to its end. A shell may hide that from whoever started it. exit() is noted here; whoever watches the
   process may note the rest, and does so in the same place. */
enum sim_end {
    SIM_END_IS_NOT_KNOWN, /* it goes on, or ended by a signal, by _exit() or by exec */
    SIM_END_IS_GOOD,
    SIM_END_IS_AN_ERROR,
    SIM_END_BY_ANOTHER /* another process has sent it a signal: ends it by that, or with an error. Whoever watches notes it */
};

/* The folder's file PID-N.peaks; N is 0 but where a process of that number had one before (it has called exec). Managed memory
   is not in `bytes`: the driver moves it to the host where a device is full.

   A refused call counts as the driver sees it. In a process with the library that is not what the program sees: pages are
   moved, and it is served all the same. */
struct sim_peaks {
    _Atomic uint64_t bytes[16]; /* by the machine's index of the device */
    _Atomic uint64_t served;    /* 1: libsegalloc.so is in the process */
    _Atomic uint64_t end;       /* enum sim_end */
    _Atomic uint64_t managed;   /* the most managed memory that there was, wherever it lay */
    _Atomic uint64_t refused;   /* calls that found no memory of a device */
    _Atomic uint64_t refused_bytes; /* of the largest of them */
    _Atomic uint64_t later;         /* calls that found some after the last of those */
};

struct sim_device;
/* Makes the file, if the settings name a folder. False after a line on stderr. */
bool sim_peaks_start(void);
/* Locked. After memory of the device was taken. */
void sim_peaks_note(const struct sim_device *device);
/* Locked. A call of the program for so many bytes of a device found them, or did not. */
void sim_peaks_charged(uint64_t bytes, bool found);
/* Locked. Managed memory was made. */
void sim_peaks_managed(uint64_t bytes);
/* The program asks how much memory there is. It is noted where the library does not do so. */
void sim_peaks_asked(void);

#endif
