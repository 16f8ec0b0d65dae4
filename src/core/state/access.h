/* The devices that reach the memory of this one.

   A *peer* is another device that has access (cuCtxEnablePeerAccess). Access is given to mappings, so each page that
   is mapped later is given it too. Once there was a peer, `peer_accessed` stays: what was mapped then keeps its
   access, and a free must reckon with work of that device.

   For example, peers = 0b110 on device 0: pages are mapped on devices 0, 1 and 2, and each takes three mappings. */
#ifndef SG_CORE_STATE_ACCESS_H
#define SG_CORE_STATE_ACCESS_H

#include "core/state/device.h"

/* Sets the devices that have access, a bit each, and emits that. Pages that are mapped already are the caller's to
   change. */
void sg_device_set_peers_locked(struct sg_device *device, uint64_t peers) SG_REQUIRES(lock);

#endif
