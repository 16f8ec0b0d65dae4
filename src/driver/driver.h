/* The CUDA driver as one table of typed pointers. The core calls nothing else, so that it runs unchanged on the real
   driver, on the simulated one and on a replay's bookkeeping. */
#ifndef SG_DRIVER_H
#define SG_DRIVER_H

#include <stdbool.h>

#include "cuda_abi.h"

struct sg_driver {
#define CALL(name, symbol, need, parameters) CUresult(*name) parameters;
#include "calls.def"
};

/* Fills the table through `lookup`, which answers a symbol of libcuda or NULL. Returns the first REQUIRED symbol that
   is missing, NULL when there is none. */
const char *sg_driver_load(struct sg_driver *driver, void *(*lookup)(void *user, const char *symbol), void *user);

/* Whether every call of the virtual memory management interface is there. */
bool sg_driver_has_vmm(const struct sg_driver *driver);

/* Whether the driver answers nothing but this error in this process from now on (sticky.def). */
bool sg_driver_is_sticky(CUresult result);

/* Bytes of device `ordinal`, which has `total` by cuDeviceTotalMem, that are in use. A total of cuMemGetInfo that differs
   by up to `alike` is the better one. False: the driver says nothing of that device. */
bool sg_driver_used_memory(const struct sg_driver *driver, int ordinal, uint64_t total, uint64_t alike, uint64_t *ret);

/* Waits for the work of a context that need not be the current one, which stays so. The driver's error. */
/* of a driver without a call for that */
CUresult sg_driver_synchronize_pushed(const struct sg_driver *driver, CUcontext context);
static inline CUresult sg_driver_synchronize(const struct sg_driver *driver, CUcontext context)
{
    return driver->ctx_synchronize_of ? driver->ctx_synchronize_of(context)
                                      : sg_driver_synchronize_pushed(driver, context);
}

#endif
