/* The driver as the runtime sees it: libcuda.so.1 opened on first use, every function asked of cuGetProcAddress. That
   is the route NVIDIA's runtime takes, and whoever interposes on it depends on that: nothing here is a short cut. */
#ifndef SG_RT_LIBCUDA_H
#define SG_RT_LIBCUDA_H

#include "driver/cuda_proto.h"
#include "runtime_abi.h"

/* One table for each meaning of stream 0. A function that the driver lacks is there and fails with
   cudaErrorCallRequiresNewerDriver, one of the OTHER ones with cudaErrorNotSupported. */
struct sg_rt_driver {
#define DRIVER(name, version, symbol) __typeof__(symbol) *name;
#define OTHER(name, version, parameters) CUresult(*name) parameters;
#include "libcuda.def"
#undef DRIVER
#undef OTHER
};
extern struct sg_rt_driver sg_rt_legacy, sg_rt_per_thread;

/* The driver's number for an address, which the runtime's callers give as a pointer. */
static inline CUdeviceptr sg_rt_address(const void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

/* Loads and initialises the driver, once in a process, from any thread. Returns cudaSuccess, or for the rest of the
   process the reason why there is none: cudaErrorInsufficientDriver (no libcuda.so.1, or older than this runtime),
   cudaErrorNoDevice, cudaErrorInitializationError (also in a child forked afterwards), or what cuInit said. */
cudaError_t sg_rt_load(void);

/* Devices found by sg_rt_load. */
int sg_rt_device_count(void);

/* The version that the driver reports; 0 when there is none. Does not initialise it. */
int sg_rt_driver_version(void);

/* The runtime's number for what the driver returned. */
cudaError_t sg_rt_translate(CUresult result);

/* cuGetProcAddress_v2 of the loaded driver, made of the older form where that is all there is. */
CUresult sg_rt_proc_address(const char *symbol, void **ret, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status);

#endif
