/* Registrations of programs before main: images of device code, the kernels in them and the variables. Nothing touches
   the driver until a kernel is launched or a variable is used. */
#ifndef SG_RT_REGISTRY_H
#define SG_RT_REGISTRY_H

#include "libcuda.h"

/* A registered kernel, which the runtime hands out as cudaKernel_t. The attributes are those that a program can set.
   Lives until its image is unregistered. */
struct sg_rt_kernel {
    const char *name;
    int max_dynamic_shared_bytes;
    int shared_carveout;
};

/* The kernel that stands behind a host function or a cudaKernel_t; cudaErrorInvalidDeviceFunction if none does. */
cudaError_t sg_rt_kernel(const void *function, struct sg_rt_kernel **ret);

/* The driver's function for the kernel in the current context, its image loaded on first use. */
cudaError_t sg_rt_kernel_function(struct sg_rt_kernel *kernel, CUfunction *ret);

/* Address and size of a registered variable; its memory is made on first use, zeroed, and belongs to all devices.
   cudaErrorInvalidSymbol if there is none. */
cudaError_t sg_rt_symbol(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes);

/* Exported for the start-up code that nvcc writes into every program. */
#pragma GCC visibility push(default)
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit,
    void *tid, void *bid, dim3 *block, dim3 *grid, int *warp);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
    int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int ext, size_t bytes,
    int constant, int global);
void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes);
void __cudaRegisterUnifiedTable(void **handle, void *table);
char __cudaInitModule(void **handle);
#pragma GCC visibility pop

#endif
