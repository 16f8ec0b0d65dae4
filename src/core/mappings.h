/* Mappings. A page takes one at each of its addresses on each device that has access, and a machine has so many for all
   processes and devices together; when they are out, no process of it can map anything. So a device takes no more than
   its share: beyond two thirds of that new regions have larger pages, and beyond all of it no page gets a second
   address. */
#ifndef SG_MAPPINGS_H
#define SG_MAPPINGS_H

#include "device.h"

/* Each takes a handle of UVM's client of the resource manager. Source: RS_UNIQUE_HANDLE_RANGE (rs_client.h) and
   dupMemory() (nv_gpu_ops.c) of NVIDIA's open kernel modules 535 to 595. A machine is taken to have eight devices, as
   most with large ones have. */
enum { SG_MAPPINGS_OF_MACHINE = 0x80000, SG_MAPPINGS_OF_DEVICE = SG_MAPPINGS_OF_MACHINE / 8 };

/* How many the device has. Under the lock. */
uint64_t sg_mappings_now(const struct sg_device *device);

/* How many more pages may have a second address. Under the lock. */
uint32_t sg_mappings_left(const struct sg_device *device);

/* Enlarges the pages of new regions where it is time for that, unless the configuration says how large they are. Under
   the lock, with `grow`. */
void sg_mappings_watch(struct sg_device *device);

/* The driver has twice given no access to pages that it had, with this error: most likely there are no mappings left.
   Gives back what takes some without being of use, sees to it that the device takes fewer from here on, and says so.
   Whether anything was done, so that another try may help: once a device. Holds `grow`; no lock. */
bool sg_mappings_refused(struct sg_device *device, CUresult result);

/* Tells the user, once, when a region of larger pages was made. No lock but `grow` is held. */
void sg_mappings_tell(struct sg_device *device);

/* Whether new pages may be made in a region: not once its class takes larger ones. */
static inline bool sg_mappings_grows(const struct sg_device *device, uint32_t index)
{
    enum sg_class class = device->region_class[index];
    return class == SG_CLASS_HUGE ||
           (uint64_t)device->region[index]->page_units << SG_UNIT_SHIFT == device->page_bytes[class];
}

#endif
