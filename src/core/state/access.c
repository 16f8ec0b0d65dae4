/* The trace has who reaches the memory, since the costs of growing go with it. */
#include "core/state/access.h"

void sg_device_set_peers_locked(struct sg_device *device, uint64_t peers)
{
    SG_ASSERT_HELD(&device->lock);
    device->access.peers = peers;
    device->access.peer_accessed |= peers != 0;
    sg_emit(device, SEGALLOC_RECORD_PEERS, 0, sg_device_unknown_stream(device), 0, peers);
}
