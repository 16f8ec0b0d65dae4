/* The start of a device: what it can do, how large its pages are, and what its calls cost.

   A device is made ready on first use, under `setup`, by one thread. Its *mode* says how it serves: regions, fixed segments,
   or not at all. Nobody else has the device before it is published, so its fields need no lock until then.

   For example, a card of 80 GiB with memory management is probed once: granules of 2 MiB, pages of 8 MiB, mode
   SG_MODE_EXPANDABLE. Where both probes fail it serves fixed segments. */
#ifndef SG_CORE_START_H
#define SG_CORE_START_H

#include "core/state/device.h"

/* The device, made ready on first use; NULL when out of host memory or disabled. */
struct sg_device *sg_device_get(struct sg_core *core, int ordinal);

#endif
