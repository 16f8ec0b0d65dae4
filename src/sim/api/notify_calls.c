/* Notifications of a device to a process (CUDA 12.4). The driver calls back on a thread of its own, never on one of the
   program's. Here segalloc_sim_over_budget() says when. */
#include <pthread.h>
#include <stdlib.h>

#include "api/notify_calls.h"
#include "calls.h"
#include "device/device.h"

/* One registration, in a list that is under the simulator's lock. */
struct CUasyncCallbackEntry_st {
    CUasyncCallbackHandle next;
    int device;
    CUasyncCallback function;
    void *user;
};

static CUasyncCallbackHandle registered;

CUresult cuDeviceRegisterAsyncNotification(CUdevice ordinal, CUasyncCallback function, void *user,
    CUasyncCallbackHandle *ret)
{
    SIM_ENTER_WITH(cuDeviceRegisterAsyncNotification, ordinal, function, user, ret);
    if (!function || !ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    if (!sim.config.notifies)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUasyncCallbackHandle entry = malloc(sizeof *entry);
    if (!entry)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_lock();
    *entry = (struct CUasyncCallbackEntry_st){registered, ordinal, function, user};
    registered = entry;
    sim_unlock();
    *ret = entry;
    return CUDA_SUCCESS;
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice ordinal, CUasyncCallbackHandle callback)
{
    SIM_ENTER_WITH(cuDeviceUnregisterAsyncNotification, ordinal, callback);
    if (!sim_device(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    CUasyncCallbackHandle *at = &registered;
    while (*at && *at != callback)
        at = &(*at)->next;
    CUasyncCallbackHandle found = *at;
    if (found)
        *at = found->next;
    sim_unlock();
    free(found);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct notice {
    int device;
    uint64_t bytes;
};

/* The driver's thread. Registrations are called without the lock: one may allocate nothing, but others go on. */
static void *notify_registered(void *user)
{
    enum { MOST = 16 };
    const struct notice *notice = user;
    struct CUasyncCallbackEntry_st list[MOST];
    CUasyncCallbackHandle handles[MOST];
    int count = 0;
    sim_lock();
    for (CUasyncCallbackHandle entry = registered; entry && count < MOST; entry = entry->next) {
        if (entry->device == notice->device) {
            handles[count] = entry;
            list[count++] = *entry;
        }
    }
    sim_unlock();
    for (int i = 0; i < count; i++) {
        CUasyncNotificationInfo info = {.type = CU_ASYNC_NOTIFICATION_TYPE_OVER_BUDGET,
            .info.overBudget.bytesOverBudget = notice->bytes};
        list[i].function(&info, list[i].user, handles[i]);
    }
    return NULL;
}

int sim_notify_over_budget(int device, uint64_t bytes)
{
    struct notice notice = {device, bytes};
    pthread_t thread;
    if (pthread_create(&thread, NULL, notify_registered, &notice) != 0)
        return -1;
    return pthread_join(thread, NULL) == 0 ? 0 : -1;
}
