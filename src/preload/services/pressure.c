/* The driver's notifications come on a thread of its own, in which it must not be called. */
#include "services/pressure.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "core/core.h"
#include "process/host_limits.h"
#include "process/process.h"
#include "process/symbols.h"

static _Atomic uint64_t over[SG_DEVICES_MAX]; /* bytes over the budget, until they are taken */
static void (*wake_helper)(void);             /* set before a device is watched, always to the same */

/* Called by the driver. The device is the place in `over`. */
static void pressure_notified(CUasyncNotificationInfo *info, void *user, CUasyncCallbackHandle handle)
{
    _Atomic uint64_t *bytes = user;
    (void)handle;
    if (info->type != CU_ASYNC_NOTIFICATION_TYPE_OVER_BUDGET || sg_process_over())
        return;
    atomic_store(bytes, info->info.overBudget.bytesOverBudget);
    wake_helper();
}

/* A registration lasts as long as the process: its answer is two stores. */
void sg_pressure_watch(int device, void (*wake)(void))
{
    struct sg_host_limits limits;
    CUresult (*watch)(CUdevice device, CUasyncCallback callback, void *user, CUasyncCallbackHandle *ret);
    CUasyncCallbackHandle handle;
    void *symbol = sg_cuda_symbol("cuDeviceRegisterAsyncNotification");
    memcpy(&watch, &symbol, sizeof watch);
    wake_helper = wake;
    if (symbol) /* CUDA_ERROR_NOT_SUPPORTED on many devices */
        (void)watch(device, pressure_notified, &over[device], &handle);
    if (sg_host_limits_read(device, &limits))
        wake(); /* from now on it looks more often */
}

uint64_t sg_pressure_look_ns(void)
{
    return sg_host_limits_any() ? SG_PRESSURE_LOOK_NS : 0;
}

/* The driver's bytes are taken once, and come again with its next notification. The kernel's are as they are now. */
uint64_t sg_pressure_take(int device)
{
    uint64_t driver = atomic_exchange(&over[device], 0);
    uint64_t kernel = sg_host_limits_any() ? sg_host_limits_wanted(device) : 0;
    return driver > kernel ? driver : kernel;
}
