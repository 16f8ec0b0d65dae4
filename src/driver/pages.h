/* Physical pages of one device, by the driver's virtual memory management: created, mapped, given access, taken back.

   A *page* is one physical allocation (cuMemCreate), a *handle* names it. A *mapping* is a page at an address. The *kind* of
   a page says who may reach it besides the device: a network card, another process, another machine.

   Why a layer of its own: each call needs the same properties, counts its failures and may be tried again. The core says
   which page goes where; nothing is decided here.

   Example, the life of a page of 2 MiB at 0x7f0000200000 on device 0, to which device 1 has access:
     create       2097152 bytes, kind EXPORTABLE    handle 0x11; the device has 2 MiB less
     map          0x7f0000200000, handle 0x11       the address has no access yet
     set_access   0x7f0000200000, peers 2           bit 1: device 1; device 0 always has access
     unmap        0x7f0000200000                    the page lives on: it may be mapped elsewhere
     release      0x11                              the device has its 2 MiB back

   The caller holds `grow` of the device, which guards `last_error`, or is making the device. It does not hold `lock`,
   since each of these calls may wait.

   Each function returns the driver's error. `errors` counts failed calls, except sg_pages_reserve(), and
   sg_pages_create() for want of memory. */
#ifndef SG_PAGES_H
#define SG_PAGES_H

#include "driver.h"
#include "base/lock.h"

enum { SG_PAGES_DEVICES = 64 /* bits of `peers` */, SG_PAGES_GRANULE_LEAST = 512 /* bytes: a block's unit */ };

/* Uses that pages are fit for, beyond those of their device. */
enum sg_page_kind {
    SG_PAGES_RDMA = 1,       /* a network card may reach them */
    SG_PAGES_EXPORTABLE = 2, /* they can be given to another process, as a file descriptor */
    SG_PAGES_FABRIC = 4      /* and to a process on another machine, by a fabric handle */
};

struct sg_pages {
    const struct sg_driver *driver;
    int ordinal;
    uint8_t kind;        /* bits of enum sg_page_kind */
    CUresult last_error; /* that was counted */
    uint64_t *errors;    /* counter of failed calls, updated atomically */
};

/* The driver, for a call that may wait. */
static inline const struct sg_driver *sg_pages_driver(const struct sg_pages *pages)
{
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
    return pages->driver;
}

/* True if pages can come and go on the device: one granule is created, mapped and taken back. Sets `kind` to the best that
   the driver makes, or to none with `plain`, and *ret_granularity in bytes. False may also mean that the driver was busy. */
bool sg_pages_probe(struct sg_pages *pages, bool plain, uint64_t *ret_granularity);

/* Counts `result` if it is a failure, and keeps it as the last error. Returns it. */
CUresult sg_pages_answered(struct sg_pages *pages, CUresult result);

/* Reserves `bytes` of addresses, a multiple of the granularity, aligned to `alignment` (0: to the granularity). A refusal
   is not counted: the caller may ask for less. */
CUresult sg_pages_reserve(struct sg_pages *pages, uint64_t bytes, uint64_t alignment, CUdeviceptr *ret);

/* Makes a page of `bytes`, which is the caller's to release. CUDA_ERROR_OUT_OF_MEMORY is not counted as a failure. The
   page can then be mapped, at as many addresses as need be. */
CUresult sg_pages_create(struct sg_pages *pages, uint64_t bytes, CUmemGenericAllocationHandle *ret);
/* The granularity in bytes of pages in the host's memory, which the device reaches over its link. 0: the driver makes none.
   Only the location "host" counts: "host, node" ends the process on some machines with older drivers (nccl#2106). */
uint64_t sg_pages_host_granularity(struct sg_pages *pages);

/* Makes a page of `bytes` in the host's memory; otherwise as sg_pages_create(). */
CUresult sg_pages_create_on_host(struct sg_pages *pages, uint64_t bytes, CUmemGenericAllocationHandle *ret);

/* Tries whether pages of device `peer` can be mapped for this device and for `access`, a bit for each ordinal.
   One granule is created, mapped and taken back. Sets *ret_granularity in bytes. False: they can't. A device
   that is full counts as one where they can. */
bool sg_pages_try_peer(struct sg_pages *pages, int peer, uint64_t access, uint64_t *ret_granularity);

/* Makes a page of `bytes` in the memory of device `peer`; otherwise as sg_pages_create(). */
CUresult sg_pages_create_on_peer(struct sg_pages *pages, int peer, uint64_t bytes, CUmemGenericAllocationHandle *ret);

CUresult sg_pages_map(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle page);

/* Gives access to whole mappings, to the device and to `peers`, a bit for each ordinal. One call may cover neighbours. */
CUresult sg_pages_set_access(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes, uint64_t peers);

/* Takes whole mappings, and a page, back. Each call is made once more where the driver refuses, unless the error is one
   after which nothing else is answered. Both tries are counted. */
CUresult sg_pages_unmap(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes);
CUresult sg_pages_release(struct sg_pages *pages, CUmemGenericAllocationHandle page);

#endif
