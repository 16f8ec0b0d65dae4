/* Mappings. A page takes one at each of its addresses on each device that has access. A machine has 524,288 for all
   processes and devices together. When they are out, no process can map anything. Growing costs by the page, too. So
   a page is a share of what may be held, and a device takes a bounded number of mappings (mapping_limit).

   For example, a card of 80 GiB with 12,288 mappings and pages of 8 MiB: full, it takes 10,240. With one peer each page
   takes two, so pages are of 16 MiB, and 5,120 pages fill the card. */
#ifndef SG_CORE_STATE_MAPPINGS_H
#define SG_CORE_STATE_MAPPINGS_H

#include "core/state/device.h"

/* Each takes a handle of UVM's client of the resource manager. Source: RS_UNIQUE_HANDLE_RANGE (rs_client.h) and
   dupMemory() (nv_gpu_ops.c) of NVIDIA's open kernel modules 535 to 595. */
enum { SG_MAPPINGS_OF_MACHINE = 0x80000 };

/* On how many devices each page is mapped. Under `lock`, or with `grow`. */
uint32_t sg_mappings_devices(const struct sg_device *device);

/* How many the device has. Under `lock`. */
uint64_t sg_mappings_now_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* How many more pages may have a second address, so that the rest of the device can still be filled. */
uint32_t sg_mappings_left_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Sets how large pages are, by page_size_mb and what may be held, which is known. The device is being made ready. */
void sg_mappings_size_pages(struct sg_device *device);

/* Enlarges the pages of new regions where pages of the present size would take too many mappings for the rest of the
   device. A size of the configuration's is kept. Under `lock`, with `grow`. */
void sg_mappings_watch_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Whether new pages may be made in a region: not once its class takes larger ones. */
static inline bool sg_mappings_grows_locked(const struct sg_device *device, uint32_t index) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    enum sg_region_kind kind = device->regions.kind[index];
    return kind == SG_KIND_HUGE ||
           sg_region_page_bytes(device->regions.region[index]) == device->regions.page_bytes[kind];
}

#endif
