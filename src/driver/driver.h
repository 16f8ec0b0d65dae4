/* The CUDA driver as one table of typed pointers.

   A *row* is a call of calls.def. The core calls nothing but these rows. So it runs unchanged on the real driver, on the
   simulated one, on a replay's bookkeeping, and on a test's driver that fails any call.

   Example: a row CALL(unmap, cuMemUnmap, VMM, (CUdeviceptr address, size_t bytes)) gives the member
       CUresult (*unmap)(CUdeviceptr address, size_t bytes);
   sg_driver_load() sets it to what `lookup` answers for "cuMemUnmap". On a driver without that symbol it is NULL, and
   sg_driver_has_vmm() is false, since the row is VMM: the device is served with fixed segments.

   The table is filled once and then only read, by any thread, without a lock. */
#ifndef SG_DRIVER_H
#define SG_DRIVER_H

#include <stdbool.h>

#include "cuda_abi.h"

struct sg_driver {
#define CALL(name, symbol, need, parameters) CUresult(*name) parameters;
#include "calls.def"
};

/* Fills the table through `lookup`, which answers a symbol of libcuda or NULL; `user` is its own. Returns the first REQUIRED
   symbol that is missing, a constant text; NULL: none is. */
const char *sg_driver_load(struct sg_driver *driver, void *(*lookup)(void *user, const char *symbol), void *user);

/* True if every call of the virtual memory management interface is there. A device may still not support it
   (sg_pages_probe). */
bool sg_driver_has_vmm(const struct sg_driver *driver);

/* True if the driver answers nothing but this error in this process from now on (sticky.def). */
bool sg_driver_is_sticky(CUresult result);

/* Sets *ret to the bytes of device `ordinal` that are in use by anybody. `total` is the device's by cuDeviceTotalMem. A
   total of cuMemGetInfo that differs by up to `alike` bytes is taken instead. A context of the device should be current.
   False: the driver says nothing of that device.

   Example: a device of 24 GiB under a quota of 8 GiB (MPS). cuMemGetInfo says total 8, free 6. The totals differ by far, so
   24 stays the total, and 18 GiB count as in use: 6 GiB are to be had. */
bool sg_driver_used_memory(const struct sg_driver *driver, int ordinal, uint64_t total, uint64_t alike, uint64_t *ret);

/* Waits on the host for all work of a context, and returns the driver's error. The current context stays as it is. CUDA 13
   has a call for any context. Older drivers have one for the current context, so the context is pushed and popped again.
   No lock of rank DEVICE or above may be held. */
CUresult sg_driver_synchronize_pushed(const struct sg_driver *driver, CUcontext context);
static inline CUresult sg_driver_synchronize(const struct sg_driver *driver, CUcontext context)
{
    return driver->ctx_synchronize_of ? driver->ctx_synchronize_of(context)
                                      : sg_driver_synchronize_pushed(driver, context);
}

#endif
