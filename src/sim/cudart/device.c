/* Devices: what they are, and what is set for the one that is current. */
#include <stdatomic.h>
#include <string.h>

#include "context.h"
#include "entry.h"
#include "error.h"

cudaError_t sg_cudaGetDeviceCount(const struct sg_rt_driver *driver, int *ret)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_load();
    *ret = error == cudaSuccess ? sg_rt_device_count() : 0;
    return error;
}

cudaError_t sg_cudaSetValidDevices(const struct sg_rt_driver *driver, int *devices, int count)
{
    (void)driver;
    for (int i = 0; i < count; i++) {
        cudaError_t error = sg_rt_check_device(devices[i]);
        if (error != cudaSuccess)
            return error;
    }
    return sg_rt_load();
}

cudaError_t sg_cudaChooseDevice(const struct sg_rt_driver *driver, int *ret, const struct cudaDeviceProp *prop)
{
    (void)driver;
    if (!ret || !prop)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_load();
    if (error == cudaSuccess)
        *ret = 0;
    return error;
}

cudaError_t sg_cudaSetDeviceFlags(const struct sg_rt_driver *driver, unsigned flags)
{
    enum { KNOWN_FLAGS = 0xff };
    if (flags & ~(unsigned)KNOWN_FLAGS)
        return cudaErrorInvalidValue;
    int device = 0;
    cudaError_t error = sg_rt_device(&device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDevicePrimaryCtxSetFlags(device, flags));
}

cudaError_t sg_cudaGetDeviceFlags(const struct sg_rt_driver *driver, unsigned *ret)
{
    if (!ret)
        return cudaErrorInvalidValue;
    int device = 0, active;
    cudaError_t error = sg_rt_device(&device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDevicePrimaryCtxGetState(device, ret, &active));
}

cudaError_t sg_cudaDeviceGetAttribute(const struct sg_rt_driver *driver, int *ret, int attribute, int device)
{
    cudaError_t error = sg_rt_check_device(device);
    if (error != cudaSuccess)
        return error;
    return sg_rt_translate(driver->cuDeviceGetAttribute(ret, (CUdevice_attribute)attribute, device));
}

cudaError_t sg_cudaDeviceGetPCIBusId(const struct sg_rt_driver *driver, char *text, int length, int device)
{
    cudaError_t error = sg_rt_check_device(device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceGetPCIBusId(text, length, device));
}

cudaError_t sg_cudaDeviceGetByPCIBusId(const struct sg_rt_driver *driver, int *ret, const char *text)
{
    cudaError_t error = sg_rt_load();
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceGetByPCIBusId(ret, text));
}

cudaError_t sg_cudaDeviceCanAccessPeer(const struct sg_rt_driver *driver, int *ret, int device, int peer)
{
    cudaError_t error = sg_rt_check_device(device);
    if (error == cudaSuccess)
        error = sg_rt_check_device(peer);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceCanAccessPeer(ret, device, peer));
}

cudaError_t sg_cudaDeviceGetP2PAttribute(const struct sg_rt_driver *driver, int *ret, int attribute, int from, int to)
{
    cudaError_t error = sg_rt_check_device(from);
    if (error == cudaSuccess)
        error = sg_rt_check_device(to);
    if (error != cudaSuccess)
        return error;
    return sg_rt_translate(driver->cuDeviceGetP2PAttribute(ret, (CUdevice_P2PAttribute)attribute, from, to));
}

static cudaError_t peer_context(int peer, CUcontext *ret)
{
    cudaError_t error = sg_rt_context();
    return error != cudaSuccess ? error : sg_rt_primary(peer, ret);
}

cudaError_t sg_cudaDeviceEnablePeerAccess(const struct sg_rt_driver *driver, int peer, unsigned flags)
{
    CUcontext context = NULL;
    cudaError_t error = peer_context(peer, &context);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuCtxEnablePeerAccess(context, flags));
}

cudaError_t sg_cudaDeviceDisablePeerAccess(const struct sg_rt_driver *driver, int peer)
{
    CUcontext context = NULL;
    cudaError_t error = peer_context(peer, &context);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuCtxDisablePeerAccess(context));
}

/* Preferences of the hardware's caches, which nothing here depends on: kept, so that what was set is what is read. */
static atomic_int cache_config, shared_config;

static cudaError_t set_preference(atomic_int *preference, int value, int limit)
{
    if (value < 0 || value >= limit)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        atomic_store(preference, value);
    return error;
}

static cudaError_t get_preference(atomic_int *preference, int *ret)
{
    if (!ret)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        *ret = atomic_load(preference);
    return error;
}

cudaError_t sg_cudaDeviceSetCacheConfig(const struct sg_rt_driver *driver, int config)
{
    (void)driver;
    return set_preference(&cache_config, config, 4);
}

cudaError_t sg_cudaDeviceGetCacheConfig(const struct sg_rt_driver *driver, int *ret)
{
    (void)driver;
    return get_preference(&cache_config, ret);
}

cudaError_t sg_cudaDeviceSetSharedMemConfig(const struct sg_rt_driver *driver, int config)
{
    (void)driver;
    return set_preference(&shared_config, config, 3);
}

cudaError_t sg_cudaDeviceGetSharedMemConfig(const struct sg_rt_driver *driver, int *ret)
{
    (void)driver;
    return get_preference(&shared_config, ret);
}

#if CUDART_MAJOR == 12
cudaError_t sg_cudaThreadSetCacheConfig(const struct sg_rt_driver *driver, int config)
{
    return sg_cudaDeviceSetCacheConfig(driver, config);
}

cudaError_t sg_cudaThreadGetCacheConfig(const struct sg_rt_driver *driver, int *ret)
{
    return sg_cudaDeviceGetCacheConfig(driver, ret);
}
#endif

/* Profilers and caches that are not there have nothing to do. */
cudaError_t sg_cudaCtxResetPersistingL2Cache(const struct sg_rt_driver *driver)
{
    (void)driver;
    return sg_rt_context();
}

cudaError_t sg_cudaProfilerStart(const struct sg_rt_driver *driver)
{
    (void)driver;
    return sg_rt_context();
}

cudaError_t sg_cudaProfilerStop(const struct sg_rt_driver *driver)
{
    (void)driver;
    return sg_rt_context();
}

/* An attribute that the driver is too old to know is 0. */
static int device_known_attribute(const struct sg_rt_driver *driver, int number, int device)
{
    int value = 0;
    return driver->cuDeviceGetAttribute(&value, (CUdevice_attribute)number, device) == CUDA_SUCCESS ? value : 0;
}

static cudaError_t device_fill_properties(const struct sg_rt_driver *driver, struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof *prop);
#define INT(majors, field, number) IN_##majors(prop->field = device_known_attribute(driver, number, device);)
#define UINT(majors, field, number) IN_##majors(prop->field = (unsigned)device_known_attribute(driver, number, device);)
#define SIZE(majors, field, number) IN_##majors(prop->field = (size_t)device_known_attribute(driver, number, device);)
#define INT2(majors, field, a, b)                                           \
    IN_##majors(prop->field[0] = device_known_attribute(driver, a, device); \
                prop->field[1] = device_known_attribute(driver, b, device);)
#define INT3(majors, field, a, b, c) \
    INT2(majors, field, a, b) IN_##majors(prop->field[2] = device_known_attribute(driver, c, device);)
#define BYTES(majors, type, field, count)
#define PLAIN(majors, type, field)
#include "device_prop.def"
    CUuuid uuid;
    if (driver->cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
        memcpy(prop->uuid, &uuid, sizeof prop->uuid);
    driver->cuDeviceGetLuid(prop->luid, &prop->luidDeviceNodeMask, device);
    cudaError_t error = sg_rt_translate(driver->cuDeviceGetName(prop->name, sizeof prop->name, device));
    if (error != cudaSuccess)
        return error;
    return sg_rt_translate(driver->cuDeviceTotalMem(&prop->totalGlobalMem, device));
}

static cudaError_t device_write_properties(const struct sg_rt_driver *driver, void *ret, size_t bytes, int device)
{
    if (!ret)
        return cudaErrorInvalidValue;
    cudaError_t error = sg_rt_check_device(device);
    if (error != cudaSuccess)
        return error;
    struct cudaDeviceProp prop;
    error = device_fill_properties(driver, &prop, device);
    if (error == cudaSuccess)
        memcpy(ret, &prop, bytes);
    return error;
}

#if CUDART_MAJOR == 12
/* The name without a version is for programs built with CUDA 11, whose structure ends earlier. */
cudaError_t sg_cudaGetDeviceProperties(const struct sg_rt_driver *driver, struct cudaDeviceProp *ret, int device)
{
    return device_write_properties(driver, ret, offsetof(struct cudaDeviceProp, hostRegisterSupported), device);
}

cudaError_t sg_cudaGetDeviceProperties_v2(const struct sg_rt_driver *driver, struct cudaDeviceProp *ret, int device)
{
    return device_write_properties(driver, ret, sizeof *ret, device);
}
#else
cudaError_t sg_cudaGetDeviceProperties(const struct sg_rt_driver *driver, struct cudaDeviceProp *ret, int device)
{
    return device_write_properties(driver, ret, sizeof *ret, device);
}
#endif
