/* Which devices reach the memory of this one.

   For example, peers = 0b110 on device 0: pages are mapped on devices 0, 1 and 2, and each takes three mappings. */
#ifndef SG_CORE_STATE_ACCESS_H
#define SG_CORE_STATE_ACCESS_H

#include "core/state/device.h"

/* Which devices have access (bits). */
void sg_device_set_peers_locked(struct sg_device *device, uint64_t peers) SG_REQUIRES(lock);

#endif
