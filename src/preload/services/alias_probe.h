/* The trial of pages at two addresses: a device is tried when the process first wants a second address on it. A process
   that ends before that has nothing of it.

   Why a trial. The programming guide ("Virtual Aliasing Support") promises coherent aliases for kernels that do not
   overlap. No GPU of ours has confirmed it, and wrong memory is the worst of faults.

   How. One page is mapped twice. Sets by either address are read by the other, 32 times, and two streams write rows of
   512 bytes in turns. The trial consists of sets and copies, since there is no kernel at hand: tests/gpu has rows for
   kernels. It runs on a thread of ours.

   For example, device 0 wants its first second address. The trial takes a page of 2 MiB and about 10 ms. All words are
   right: the device is COHERENT, and its pages may have two addresses from here on. One wrong word makes it INCOHERENT
   for good, with a line. */
#ifndef SG_ALIAS_PROBE_H
#define SG_ALIAS_PROBE_H

#include <stdbool.h>

#include "config/conf.h"
#include "driver/driver.h"

/* The process allocates for the first time: notes on which device, for the text. Tries nothing. One thread, once. */
void sg_alias_probe_first(const struct sg_conf *conf, const struct sg_driver *driver);

/* True if pages of `device` have been found to bear two addresses. `wanted`: where it was not tried, it is now, which
   takes a page of the driver's for a moment. Waits about 50 ms at most: a test that takes longer goes on, and what it
   finds counts once it ends. A second thread does not wait. The device's context is current; no lock may be held. */
bool sg_alias_probe_allows(int device, bool wanted);

/* The device has run out. True: a test held a page of it, and does not any more. Waits a second at most. */
bool sg_alias_probe_gave_back(int device);

/* For statistics: "on", "not tried" or "off" with the reason, and the device if that is not the first. NULL: nothing was
   allocated, or fixed segments have no such pages. Valid until the next call; one thread at a time. */
const char *sg_alias_probe_text(void);

#endif
