/* Physical pages of one device, by the driver's virtual memory management: created, mapped, given access, taken back.
   Nothing is decided here. The caller holds `grow` of the device, which guards `last_error`, or is making the device. It
   does not hold `lock`.

   Each function returns the driver's error. `errors` counts failed calls, except sg_pages_reserve(), and
   sg_pages_create() for want of memory. */
#ifndef SG_PAGES_H
#define SG_PAGES_H

#include "driver.h"
#include "base/lock.h"

enum { SG_PAGES_DEVICES = 64 /* bits of `peers` */, SG_PAGES_GRANULE_LEAST = 512 /* bytes: a block's unit */ };

/* What pages are fit for. */
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

/* Whether pages can come and go on the device. Sets `kind` to the best that the driver makes, of which none is offered
   with `plain`, and *ret_granularity. On failure the driver may have been busy. */
bool sg_pages_probe(struct sg_pages *pages, bool plain, uint64_t *ret_granularity);

/* A call was answered so: counts one that failed. Returns the answer. */
CUresult sg_pages_answered(struct sg_pages *pages, CUresult result);

/* A range of addresses. A refusal is not counted: the caller may ask for less. */
CUresult sg_pages_reserve(struct sg_pages *pages, uint64_t bytes, uint64_t alignment, CUdeviceptr *ret);

/* A page of `bytes`, which is the caller's to release. */
CUresult sg_pages_create(struct sg_pages *pages, uint64_t bytes, CUmemGenericAllocationHandle *ret);
CUresult sg_pages_map(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes, CUmemGenericAllocationHandle page);

/* Access to whole mappings for the device and for `peers`, a bit for each. */
CUresult sg_pages_set_access(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes, uint64_t peers);

/* Whole mappings, and a page, go. Each call is made once more where the driver refuses. */
CUresult sg_pages_unmap(struct sg_pages *pages, CUdeviceptr address, uint64_t bytes);
CUresult sg_pages_release(struct sg_pages *pages, CUmemGenericAllocationHandle page);

#endif
