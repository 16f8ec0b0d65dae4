/* Pages and addresses of guarded blocks.

   Why they are not the core's. Its pages move, are shared by blocks and are kept when they are idle. These are one block's for its
   life, and go as soon as nobody may use them. The book of memory that the core does not serve has them, so the report of running
   out and the trace say what they take.

   For example, 5,000 bytes on a device with granules of 2 MiB. Addresses of 4 MiB are reserved, a page of 2 MiB is created,
   mapped at the first half and made accessible to the device and its peers. After the free the page goes back to the
   driver, and the program's own memory is larger by that again. The addresses go back at the end of the quarantine. Each step that fails takes back those before it. */
#ifndef SG_GUARD_PAGES_H
#define SG_GUARD_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/guard_table.h"

struct sg_core;

/* True if the device has pages, and the block at `inner` lies in such. Asks the driver, and a device once. */
bool sg_guard_pages_serve(int device, CUdeviceptr inner);

/* True if the device's guarded blocks may have so many bytes more. */
bool sg_guard_pages_have_room(int device, size_t bytes);

/* Pages for a block that is TAKEN: `page`, `mapped` and the range are set. False: the driver refused, nothing has changed. */
bool sg_guard_pages_take(struct sg_guard *guard, int device, size_t bytes);

/* Gives the pages back; the addresses stay reserved. Where the driver refuses to unmap them they stay for good. */
void sg_guard_pages_give(struct sg_guard *guard, int device);

/* Gives the addresses back; does nothing where there are none (0 bytes). */
void sg_guard_pages_end(const struct sg_stand_in *at);

/* `device` may access memory of `home` from here on. Returns the driver's first error. Where it may no more, what is mapped
   stays accessible, as the core's pages do. */
CUresult sg_guard_pages_peer(int home, int device, bool enable);

/* The trace has what is held now. The thread is inside, and a context of the device is current. */
void sg_guard_pages_note(struct sg_core *core, int device);

#endif
