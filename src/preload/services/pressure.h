/* Memory that should go back to the driver before somebody takes it by force.

   Nouns. *Pressure* on a device is how many bytes should go back. The kernel's comes from process/host_limits.h: a reserve
   of the host's memory that is nearly used up, a soft quota that is passed. The *driver's* comes by a notification
   (cuDeviceRegisterAsyncNotification, CUDA 12.4): this process holds so many bytes over its budget.

   Why. A limit that is passed ends the process, and idle pages count against it. The core would give them back, were it
   asked. Source: cuda.h, CUasyncNotificationInfo; docs.nvidia.com/deploy/mps.

   How. The helper thread of trim.h asks at each of its looks. The kernel tells nobody, so it looks every
   SG_PRESSURE_LOOK_NS while a device is a guest. The driver's callback notes the bytes and wakes it.

   For example, 10 GiB are held, 6 of them idle. The driver says that 2 GiB are over the budget: the helper wakes, 2 GiB go back,
   and 4 stay idle. */
#ifndef SG_PRESSURE_H
#define SG_PRESSURE_H

#include <stdint.h>

#define SG_PRESSURE_LOOK_NS UINT64_C(250000000)

/* Watches a device from here on; once for each. `wake` wakes whoever will ask, from any thread, and neither waits nor
   calls the driver. */
void sg_pressure_watch(int device, void (*wake)(void));

/* The time after which it should be asked again, in ns; 0: only when it wakes. No lock. */
uint64_t sg_pressure_look_ns(void);

/* Takes the bytes that should go back now. 0: none. Reads files on a guest. */
uint64_t sg_pressure_take(int device);

#endif
