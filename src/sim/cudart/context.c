#include "context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "entry.h"
#include "error.h"

enum { MAX_DEVICES = 64 };

/* `context` is the one that the runtime made current here, in the days of `era`. */
static _Thread_local struct {
    int device;
    int era;
    CUcontext context;
} thread;

static struct {
    pthread_mutex_t lock;
    CUcontext primary[MAX_DEVICES];
    atomic_int era;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

int sg_rt_era(void)
{
    return atomic_load_explicit(&state.era, memory_order_acquire);
}

cudaError_t sg_rt_check_device(int device)
{
    cudaError_t error = sg_rt_load();
    if (error != cudaSuccess)
        return error;
    return device >= 0 && device < sg_rt_device_count() && device < MAX_DEVICES ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t sg_rt_primary(int device, CUcontext *ret)
{
    cudaError_t error = sg_rt_check_device(device);
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&state.lock);
    if (!state.primary[device])
        error = sg_rt_translate(sg_rt_legacy.cuDevicePrimaryCtxRetain(&state.primary[device], device));
    *ret = state.primary[device];
    pthread_mutex_unlock(&state.lock);
    return error;
}

int sg_rt_device_of(CUcontext context)
{
    int found = -1;
    pthread_mutex_lock(&state.lock);
    for (int device = 0; device < MAX_DEVICES && found < 0; device++) {
        if (context && state.primary[device] == context)
            found = device;
    }
    pthread_mutex_unlock(&state.lock);
    return found;
}

/* The primary context can end without us: the program or another runtime may reset it through the driver. */
static cudaError_t set_primary(int device, CUcontext *ret)
{
    cudaError_t error = sg_rt_primary(device, ret);
    if (error != cudaSuccess)
        return error;
    error = sg_rt_translate(sg_rt_legacy.cuCtxSetCurrent(*ret));
    if (error != cudaErrorDeviceUninitialized && error != cudaErrorContextIsDestroyed)
        return error;
    pthread_mutex_lock(&state.lock);
    if (state.primary[device] == *ret)
        state.primary[device] = NULL;
    pthread_mutex_unlock(&state.lock);
    error = sg_rt_primary(device, ret);
    return error != cudaSuccess ? error : sg_rt_translate(sg_rt_legacy.cuCtxSetCurrent(*ret));
}

static cudaError_t make_current(int device)
{
    CUcontext context = NULL;
    int era = sg_rt_era();
    cudaError_t error = set_primary(device, &context);
    if (error != cudaSuccess)
        return error;
    thread.device = device;
    thread.context = context;
    thread.era = era;
    return cudaSuccess;
}

/* True if `current` is the runtime's own choice for this thread, which a reset of the device takes away. */
static bool context_is_ours(CUcontext current)
{
    return current == thread.context;
}

cudaError_t sg_rt_context(void)
{
    cudaError_t error = sg_rt_load();
    if (error != cudaSuccess)
        return error;
    CUcontext current = NULL;
    error = sg_rt_translate(sg_rt_legacy.cuCtxGetCurrent(&current));
    if (error != cudaSuccess)
        return error;
    if (current && (!context_is_ours(current) || thread.era == sg_rt_era()))
        return cudaSuccess;
    return make_current(thread.device);
}

cudaError_t sg_rt_device(int *ret)
{
    cudaError_t error = sg_rt_load();
    if (error != cudaSuccess)
        return error;
    CUcontext current = NULL;
    error = sg_rt_translate(sg_rt_legacy.cuCtxGetCurrent(&current));
    if (error != cudaSuccess)
        return error;
    if (!current || context_is_ours(current)) {
        *ret = thread.device;
        return cudaSuccess;
    }
    CUdevice device = 0;
    error = sg_rt_translate(sg_rt_legacy.cuCtxGetDevice(&device));
    if (error == cudaSuccess)
        *ret = device;
    return error;
}

cudaError_t sg_cudaGetDevice(const struct sg_rt_driver *driver, int *ret)
{
    (void)driver;
    return ret ? sg_rt_device(ret) : cudaErrorInvalidValue;
}

cudaError_t sg_cudaSetDevice(const struct sg_rt_driver *driver, int device)
{
    (void)driver;
    return make_current(device);
}

cudaError_t sg_cudaInitDevice(const struct sg_rt_driver *driver, int device, unsigned device_flags, unsigned flags)
{
    enum { FLAGS_ARE_VALID = 1 };
    cudaError_t error = sg_rt_check_device(device);
    if (error != cudaSuccess)
        return error;
    if (flags & FLAGS_ARE_VALID) {
        error = sg_rt_translate(driver->cuDevicePrimaryCtxSetFlags(device, device_flags));
        if (error != cudaSuccess)
            return error;
    }
    CUcontext context;
    return sg_rt_primary(device, &context);
}

cudaError_t sg_cudaDeviceReset(const struct sg_rt_driver *driver)
{
    int device = 0;
    cudaError_t error = sg_rt_device(&device);
    if (error != cudaSuccess)
        return error;
    CUcontext current = NULL;
    driver->cuCtxGetCurrent(&current);
    pthread_mutex_lock(&state.lock);
    CUcontext gone = state.primary[device];
    error = sg_rt_translate(driver->cuDevicePrimaryCtxReset(device));
    if (gone)
        driver->cuDevicePrimaryCtxRelease(device); /* a reset leaves it taken up; the next use does that anew */
    state.primary[device] = NULL;
    atomic_fetch_add_explicit(&state.era, 1, memory_order_release);
    pthread_mutex_unlock(&state.lock);
    sg_rt_forget_sticky();
    if (current && current == gone)
        driver->cuCtxSetCurrent(NULL);
    thread.context = NULL;
    return error;
}

#if CUDART_MAJOR == 12
cudaError_t sg_cudaThreadExit(const struct sg_rt_driver *driver)
{
    return sg_cudaDeviceReset(driver);
}
#endif
