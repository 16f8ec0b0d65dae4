/* The machine's devices as NVML has them: what anybody uses of each, whoever serves it.

   Why. Live statistics are of one user's processes with the library. NVML adds the rest: other users, programs without it.
   The library libnvidia-ml.so.1 is loaded where it is there, and nothing is said where it is not.

   For example, a process here holds 6 GiB of a card of 24, and NVML says that 15 are in use: 9 are somebody else's. */
#ifndef SG_NVML_H
#define SG_NVML_H

#include <stdint.h>

#include "json.h"

enum { SG_NVML_DEVICES = 64 };

struct sg_nvml_device {
    unsigned index;                   /* NVML's, which no CUDA_VISIBLE_DEVICES changes */
    char uuid[64];                    /* "GPU-…"; "": not known */
    uint64_t total_bytes, used_bytes; /* 0 and 0 where memory has no figures, as on integrated devices */
    int busy_percent;                 /* of time in which a kernel ran, lately; negative: not known */
};

/* Fills `ret` with up to SG_NVML_DEVICES, and returns how many there are; 0: no NVML. Not for two threads at once. */
unsigned sg_nvml_read(struct sg_nvml_device ret[SG_NVML_DEVICES]);

/* Those devices as a JSON array; empty where there is no NVML. The caller's. */
json_t *sg_nvml_json(void);

#endif
