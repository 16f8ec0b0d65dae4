/* The start of a device: what it can do, how large its pages are, and what its calls cost.

   Nouns. The *mode* of a device says how it serves: regions, fixed segments, or not at all. A *probe* makes, maps and
   releases one page, to see whether the driver can.

   Why on first use: a process that never allocates on a device must not touch it, and probing takes driver calls.
   How: one thread makes the device ready under `setup`, while others wait for it. Nobody else has the device before
   it is published, so its fields need no lock until then. Limits: a device is made once; a driver that fails both
   probes is never asked again.

   For example, a card of 80 GiB with memory management is probed once: granules of 2 MiB, pages of 8 MiB, mode
   SG_MODE_EXPANDABLE. Then the costs of the driver's calls are measured, and emitted as records. Where both probes
   fail the device serves fixed segments. */
#ifndef SG_CORE_START_H
#define SG_CORE_START_H

#include "core/state/device.h"

/* The device of an ordinal, made ready on first use. NULL: no such ordinal, no host memory, or the core is disabled.
   It may take `setup` and call the driver. */
struct sg_device *sg_device_get(struct sg_core *core, int ordinal);

#endif
