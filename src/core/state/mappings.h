/* Mappings: how many a device takes, and how large its pages must be so that it takes no more.

   Nouns. A page takes one *mapping* at each of its addresses on each device that has access. A machine has 524,288
   for all processes and devices together. Why they are counted: when they are out, no process can map anything, and
   the error does not say so. Growing costs by the page, too.

   How: a page is a share of what may be held, and a device takes `mapping_limit` mappings at most. While the rest of
   the device would need more at the present page size, pages of new regions are doubled. Limits: pages that are
   mapped keep their size, and a size from the configuration is never changed.

   For example, a card of 80 GiB with 12,288 mappings and pages of 8 MiB takes 10,240 when it is full. The other 2,048
   are for aliases and the small region. With one peer each page takes two. Then pages are of 16 MiB, and 5,120 fill
   the card. */
#ifndef SG_CORE_STATE_MAPPINGS_H
#define SG_CORE_STATE_MAPPINGS_H

#include "core/state/device.h"

/* A mapping takes a handle of UVM's client of the resource manager, and one client has so many. Source:
   RS_UNIQUE_HANDLE_RANGE (rs_client.h) and dupMemory() (nv_gpu_ops.c) of NVIDIA's open kernel modules 535 to 595. */
enum { SG_MAPPINGS_OF_MACHINE = 0x80000 };

/* The number of devices on which each page is mapped, 1 and more. The caller holds `lock` or `grow`: clang cannot say
   "or". */
uint32_t sg_mappings_devices(const struct sg_device *device);

/* The mappings that the device takes now, aliases included. */
uint64_t sg_mappings_now_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* How many more pages may leave an alias, so that the rest of the device can still be filled. 0 once mappings have
   run out. */
uint32_t sg_mappings_left_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Sets the page sizes of a device that is being made ready, by page_size_mb, and by the capacity, which is known. */
void sg_mappings_size_pages(struct sg_device *device);

/* Enlarges the pages of new regions where pages of the present size would take too many mappings for the rest of the
   device. With `grow`, since plans go by the sizes. */
void sg_mappings_watch_locked(struct sg_device *device) SG_REQUIRES(lock);

/* True if new pages may be made in a region. Once its kind takes larger pages it only serves what it has. */
static inline bool sg_mappings_grows_locked(const struct sg_device *device, uint32_t index) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    enum sg_region_kind kind = sg_purpose_kind(device->regions.purpose[index]);
    return sg_kind_has_one_page(kind) ||
           sg_region_page_bytes(device->regions.region[index]) == device->regions.page_bytes[kind];
}

#endif
