/* Kernels: launches, attributes, occupancy. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "context.h"
#include "entry.h"
#include "error.h"
#include "launch.h"
#include "registry.h"

/* Limits of every GPU since compute capability 2.0. */
enum { THREADS_MAX = 1024, BLOCK_Z_MAX = 64, GRID_YZ_MAX = 65535, WARP = 32, STATIC_SHARED_MAX = 48 << 10 };

/* Simulated kernels pretend to need so many registers, and to be built for this compute capability. */
enum { REGISTERS = 32, BUILT_FOR = 80 };

/* Configurations that <<<>>> noted for the launch that follows it at once. They are nested where an argument of a
   launch launches too. */
enum { CONFIGURATIONS_MAX = 4 };
struct configuration {
    dim3 grid, block;
    size_t shared_bytes;
    CUstream stream;
};
static _Thread_local struct {
    unsigned count;
    struct configuration noted[CONFIGURATIONS_MAX];
} pending;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream stream)
{
    if (pending.count == CONFIGURATIONS_MAX)
        return (unsigned)sg_rt_note(cudaErrorLaunchMaxDepthExceeded);
    pending.noted[pending.count++] = (struct configuration){grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t sg___cudaPopCallConfiguration(const struct sg_rt_driver *driver, dim3 *grid, dim3 *block,
                                          size_t *shared_bytes, void *stream)
{
    (void)driver;
    if (pending.count == 0)
        return cudaErrorMissingConfiguration;
    const struct configuration *noted = &pending.noted[--pending.count];
    *grid = noted->grid;
    *block = noted->block;
    *shared_bytes = noted->shared_bytes;
    memcpy(stream, &noted->stream, sizeof noted->stream);
    return cudaSuccess;
}

static bool is_launchable(dim3 grid, dim3 block)
{
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
        return false;
    if (grid.y > GRID_YZ_MAX || grid.z > GRID_YZ_MAX || grid.x > INT32_MAX || block.z > BLOCK_Z_MAX)
        return false;
    return (unsigned long long)block.x * block.y <= THREADS_MAX && block.x * block.y * block.z <= THREADS_MAX;
}

enum grouping { INDEPENDENT, COOPERATIVE };

static cudaError_t launch_grid(const struct sg_rt_driver *driver, struct sg_rt_kernel *kernel, dim3 grid, dim3 block,
    void **arguments, size_t shared_bytes, CUstream stream, enum grouping grouping)
{
    CUfunction function = NULL;
    cudaError_t error = sg_rt_kernel_function(kernel, &function);
    if (error != cudaSuccess)
        return error;
    if (!is_launchable(grid, block))
        return cudaErrorInvalidConfiguration;
    if (shared_bytes > (size_t)kernel->max_dynamic_shared_bytes)
        return cudaErrorInvalidValue;
    if (grouping == COOPERATIVE)
        return sg_rt_translate(driver->cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                                 block.z, (unsigned)shared_bytes, stream, arguments));
    return sg_rt_translate(driver->cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                  (unsigned)shared_bytes, stream, arguments, NULL));
}

cudaError_t sg_cudaLaunchKernel(const struct sg_rt_driver *driver, const void *function, dim3 grid, dim3 block,
                                void **arguments, size_t shared_bytes, CUstream stream)
{
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    return error != cudaSuccess
               ? error
               : launch_grid(driver, kernel, grid, block, arguments, shared_bytes, stream, INDEPENDENT);
}

cudaError_t sg_cudaLaunchCooperativeKernel(const struct sg_rt_driver *driver, const void *function, dim3 grid,
                                           dim3 block, void **arguments, size_t shared_bytes, CUstream stream)
{
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    return error != cudaSuccess
               ? error
               : launch_grid(driver, kernel, grid, block, arguments, shared_bytes, stream, COOPERATIVE);
}

cudaError_t sg_cudaLaunchKernelExC(const struct sg_rt_driver *driver, const struct cudaLaunchConfig_st *config,
                                   const void *function, void **arguments)
{
    if (!config)
        return cudaErrorInvalidValue;
    enum grouping grouping = INDEPENDENT;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && config->attrs[i].value.cooperative)
            grouping = COOPERATIVE;
    }
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    if (error != cudaSuccess)
        return error;
    return launch_grid(driver, kernel, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
        config->stream, grouping);
}

/* nvcc 13 asks for the handle once a kernel and launches by it. */
cudaError_t sg___cudaLaunchKernel(const struct sg_rt_driver *driver, CUkernel kernel, dim3 grid, dim3 block,
                                  void **arguments, size_t shared_bytes, CUstream stream)
{
    return sg_cudaLaunchKernel(driver, kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t sg_cudaGetKernel(const struct sg_rt_driver *driver, CUkernel *ret, const void *function)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    if (error == cudaSuccess)
        *ret = (CUkernel)(void *)kernel;
    return error;
}

cudaError_t sg___cudaGetKernel(const struct sg_rt_driver *driver, CUkernel *ret, const void *function)
{
    return sg_cudaGetKernel(driver, ret, function);
}

cudaError_t sg_cudaGetFuncBySymbol(const struct sg_rt_driver *driver, CUfunction *ret, const void *function)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    return error != cudaSuccess ? error : sg_rt_kernel_function(kernel, ret);
}

cudaError_t sg_cudaFuncGetName(const struct sg_rt_driver *driver, const char **ret, const void *function)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    if (error == cudaSuccess)
        *ret = kernel->name;
    return error;
}

cudaError_t sg_cudaFuncGetAttributes(const struct sg_rt_driver *driver, struct cudaFuncAttributes *ret,
                                     const void *function)
{
    (void)driver;
    if (!ret)
        return cudaErrorInvalidValue;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_kernel(function, &kernel);
    if (error != cudaSuccess)
        return error;
    *ret = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = THREADS_MAX, .numRegs = REGISTERS, .ptxVersion = BUILT_FOR, .binaryVersion = BUILT_FOR,
        .maxDynamicSharedSizeBytes = kernel->max_dynamic_shared_bytes,
        .preferredShmemCarveout = kernel->shared_carveout,
    };
    return cudaSuccess;
}

static cudaError_t launch_device_attribute(const struct sg_rt_driver *driver, CUdevice_attribute attribute, int *ret)
{
    int device = 0;
    cudaError_t error = sg_rt_device(&device);
    return error != cudaSuccess ? error : sg_rt_translate(driver->cuDeviceGetAttribute(ret, attribute, device));
}

cudaError_t sg_cudaFuncSetAttribute(const struct sg_rt_driver *driver, const void *function, int attribute, int value)
{
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_context();
    if (error == cudaSuccess)
        error = sg_rt_kernel(function, &kernel);
    if (error != cudaSuccess)
        return error;
    int most = 0;
    switch ((CUfunction_attribute)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        error = launch_device_attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &most);
        if (error != cudaSuccess || value < 0 || value > most)
            return error != cudaSuccess ? error : cudaErrorInvalidValue;
        kernel->max_dynamic_shared_bytes = value;
        return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            return cudaErrorInvalidValue;
        kernel->shared_carveout = value;
        return cudaSuccess;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        return cudaSuccess;
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t sg_cudaFuncSetCacheConfig(const struct sg_rt_driver *driver, const void *function, int config)
{
    (void)driver;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    return error == cudaSuccess && (config < 0 || config > 3) ? cudaErrorInvalidValue : error;
}

cudaError_t sg_cudaFuncSetSharedMemConfig(const struct sg_rt_driver *driver, const void *function, int config)
{
    (void)driver;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    return error == cudaSuccess && (config < 0 || config > 2) ? cudaErrorInvalidValue : error;
}

/* The least of what threads, blocks, registers and shared memory of a multiprocessor allow. */
cudaError_t sg_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(const struct sg_rt_driver *driver, int *ret,
                                                                      const void *function, int block,
                                                                      size_t shared_bytes, unsigned flags)
{
    (void)flags;
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    if (error != cudaSuccess)
        return error;
    if (!ret || block <= 0)
        return cudaErrorInvalidValue;
    int threads = 0, blocks = 0, registers = 0, shared = 0;
    error = launch_device_attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &threads);
    if (error == cudaSuccess)
        error = launch_device_attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &blocks);
    if (error == cudaSuccess)
        error = launch_device_attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &registers);
    if (error == cudaSuccess)
        error = launch_device_attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &shared);
    if (error != cudaSuccess)
        return error;
    if (block > THREADS_MAX || shared_bytes > (size_t)kernel->max_dynamic_shared_bytes) {
        *ret = 0;
        return cudaSuccess;
    }
    int used = (block + WARP - 1) / WARP * WARP, most = threads / used;
    if (most > blocks)
        most = blocks;
    if (most > registers / (used * REGISTERS))
        most = registers / (used * REGISTERS);
    if (shared_bytes > 0 && (size_t)most > (size_t)shared / shared_bytes)
        most = (int)((size_t)shared / shared_bytes);
    *ret = most;
    return cudaSuccess;
}

cudaError_t sg_cudaOccupancyMaxActiveBlocksPerMultiprocessor(const struct sg_rt_driver *driver, int *ret,
                                                             const void *function, int block, size_t shared_bytes)
{
    return sg_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(driver, ret, function, block, shared_bytes, 0);
}

cudaError_t sg_cudaOccupancyAvailableDynamicSMemPerBlock(const struct sg_rt_driver *driver, size_t *ret,
                                                         const void *function, int blocks, int block)
{
    struct sg_rt_kernel *kernel = NULL;
    cudaError_t error = sg_rt_kernel(function, &kernel);
    if (error != cudaSuccess)
        return error;
    if (!ret || blocks <= 0 || block <= 0)
        return cudaErrorInvalidValue;
    int shared = 0;
    error = launch_device_attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &shared);
    if (error != cudaSuccess)
        return error;
    size_t share = (size_t)(shared / blocks);
    *ret = share < STATIC_SHARED_MAX ? share : STATIC_SHARED_MAX;
    return cudaSuccess;
}
