/* Limits of a device's memory that the host keeps, and that the driver does not say.

   Nouns. An *integrated* device takes its memory from the host's (CU_DEVICE_ATTRIBUTE_INTEGRATED: GB10, Jetson). A
   *quota* is a control group's for a device (dmem, CUDA 13.4). A *guest* is a device with either. *Room* is what may
   still be taken of a guest's memory (base/host_memory.h).

   Why. On an integrated device the driver gives until the machine hangs. So a page that would use up the reserve
   (`host_reserve`) is refused here, as by a driver that is out of memory. Idle pages go back before that. Any other device is
   served as if this file were not there. GH200 is such: its memory is its own.

   How. Three rows of the driver's table are replaced: the question how much is free, and the two calls that take
   memory. The core sees a driver that has less. Its decisions by that are in the trace as for any driver, so a replay
   decides the same without a file. The program's own calls that take a known size at once are refused alike
   (hooks/external_alloc_hooks.c): cuMemCreate, and pools that would have to grow.

   Limits. Managed memory and the host's own are not refused. Their pages are had when they are touched, and a range of them may be
   larger than the machine. Arrays, modules and graphs do not say how much they take. All of it counts in the figures.

   For example, a GB10 of 119.61 GiB has 7 GiB available, and the reserve is 5.98. cuMemGetInfo says that 1.02 GiB are
   free. 64 pages of 16 MiB are created, and the next is refused. */
#ifndef SG_HOST_LIMITS_H
#define SG_HOST_LIMITS_H

#include <stdbool.h>

#include "base/host_memory.h"
#include "driver/driver.h"

struct sg_conf;

struct sg_host_limits {
    bool integrated, has_quota;
    struct sg_host_memory memory; /* if integrated */
    uint64_t kept;                /* of it, bytes of the reserve */
    struct sg_device_quota quota; /* if it has one */
    uint64_t room;                /* UINT64_MAX: no limit is known */
};

/* Replaces those rows of a table that is complete, and keeps the functions that were there. `conf` answers with the
   process's configuration, which may not have been read yet. */
void sg_host_limits_heed(struct sg_driver *driver, const struct sg_conf *(*conf)(void));

/* The limits of a device as they are now. False: it is no guest. Reads files; for any thread, no lock. */
bool sg_host_limits_read(int device, struct sg_host_limits *ret);

/* True if `bytes` more of an integrated device would use up the reserve. Below 0: the current context's device. */
bool sg_host_limits_refuse(int device, uint64_t bytes);

/* True if a pool of an integrated device would use up the reserve by growing for `bytes`. Its idle memory serves first. NULL: the
   device's current pool. */
bool sg_host_limits_refuse_pool(int device, CUmemoryPool pool, uint64_t bytes);

/* Bounds what the driver said is free of the current context's device. */
void sg_host_limits_bound(size_t *free_bytes);

/* Bytes that should go back to the driver now. On an integrated device as many as it lacks of room for one more reserve,
   with a soft quota those above it. 0: none, as on a device that is no guest. */
uint64_t sg_host_limits_wanted(int device);

/* True if any device of the process is integrated. Found once, for any thread; a load from then on. */
bool sg_host_limits_integrated(void);

/* True if any device that was asked about is a guest. */
bool sg_host_limits_any(void);

#endif
