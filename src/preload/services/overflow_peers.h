/* Other devices' memory for pages of a device that lacks its own: the option overflow:peer
   (core/remap/overflow.h).

   Nouns. A device *reaches* another one if its work reads, writes and does atomics there natively. The
   *neighbour* is one that it reaches. Memory *to spare* is free there, but for the reserve: a sixteenth
   of all that it has. The option `limit` holds too.

   Why. Only a context of a device says what is free there. A pin of a context may wait, which it must not under
   a lock of the core. So the look comes before the core is asked, and the core takes what was found.

   How. Devices in which this process has a context are looked at. If none has anything to spare, the next
   device gets a context, by a retain of its primary one that is kept. The next is by ordinal, so each rank of a
   job begins with another one.

   Limits. Others may take the memory meanwhile: then the driver refuses, and the core goes on to the host. A
   context takes some hundred MiB of the neighbour.

   For example, device 0 of 24 GiB is full, and the process has no context in device 1, of which 20 GiB are
   free. The look makes one, and finds 19.6 GiB free. 1.5 GiB are the reserve, so the core may take 18.1. */
#ifndef SG_OVERFLOW_PEERS_H
#define SG_OVERFLOW_PEERS_H

#include "core/core.h"

/* Notes what devices that `device` reaches have to spare. Asks the driver; no lock is held. */
void sg_overflow_peers_look(struct sg_core *core, int device);

/* `neighbour` of struct sg_core_callbacks, by what the last look has found. */
bool sg_overflow_peers_find(int device, uint64_t peers, uint64_t among, int *ret_device, uint64_t *ret_room);

#endif
