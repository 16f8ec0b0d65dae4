/* Kernels: what is asked about them, and launches. */
#include <limits.h>

#include "calls.h"
#include "device/device.h"
#include "kernels/module.h"
#include "model.h"
#include "work/kernel_launch.h"
#include "work/program_stream.h"

enum { WARP = 32 };

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params, void **extra)
{
    SIM_ENTER_WITH(cuLaunchKernel, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return sim_launch(f, grid, block, shared_bytes, stream, params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params, void **extra)
{
    return cuLaunchKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, sim_per_thread(stream),
        params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params)
{
    SIM_ENTER_WITH(cuLaunchCooperativeKernel, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
        stream);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return sim_launch(f, grid, block, shared_bytes, stream, params, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params)
{
    return cuLaunchCooperativeKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
        sim_per_thread(stream), params);
}

static CUresult launch_config(const CUlaunchConfig *config, CUfunction f, void **params, void **extra,
    bool per_thread)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    return sim_launch(f, grid, block, config->sharedMemBytes,
        per_thread ? sim_per_thread(config->hStream) : config->hStream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    SIM_ENTER_WITH(cuLaunchKernelEx, config);
    return launch_config(config, f, params, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    SIM_ENTER_WITH(cuLaunchKernelEx, config);
    return launch_config(config, f, params, extra, true);
}

static CUresult function_get_attribute(int *value, CUfunction_attribute attribute, CUfunction handle)
{
    if (!value || (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUfunction f;
    CUresult result = sim_function_get(handle, &f);
    if (result == CUDA_SUCCESS)
        *value = f->attributes[attribute];
    sim_unlock();
    return result;
}

static CUresult function_set_attribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    if ((unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX ||
        (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
            (value < 0 || (size_t)value > sim_shared_of_block())))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUfunction f;
    CUresult result = sim_function_get(handle, &f);
    if (result == CUDA_SUCCESS)
        f->attributes[attribute] = value;
    sim_unlock();
    return result;
}

static CUresult function_check(CUfunction handle)
{
    sim_lock();
    CUfunction f;
    CUresult result = sim_function_get(handle, &f);
    sim_unlock();
    return result;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    SIM_ENTER_WITH(cuFuncGetAttribute, value, attribute, function);
    return function_get_attribute(value, attribute, function);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    return function_set_attribute(function, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_ENTER(cuFuncSetCacheConfig);
    (void)config;
    return function_check(function);
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    SIM_ENTER(cuFuncSetSharedMemConfig);
    (void)config;
    return function_check(function);
}

static CUresult function_get_name(const char **name, CUfunction handle)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check(handle);
    if (result == CUDA_SUCCESS)
        *name = handle->name;
    return result;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTER_WITH(cuFuncGetName, name, function);
    return function_get_name(name, function);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_ENTER(cuFuncGetModule);
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check(function);
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)function->code;
    return result;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTER_WITH(cuFuncIsLoaded, state, function);
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check(function);
    if (result == CUDA_SUCCESS)
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return result;
}

CUresult cuFuncLoad(CUfunction function)
{
    SIM_ENTER_WITH(cuFuncLoad, function);
    return function_check(function);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SIM_ENTER_WITH(cuKernelGetFunction, function, kernel);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check((CUfunction)kernel);
    if (result == CUDA_SUCCESS)
        *function = (CUfunction)kernel;
    return result;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    SIM_ENTER(cuKernelGetAttribute);
    return sim_device(device) ? function_get_attribute(value, attribute, (CUfunction)kernel) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    SIM_ENTER(cuKernelSetAttribute);
    return sim_device(device) ? function_set_attribute((CUfunction)kernel, attribute, value) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    SIM_ENTER(cuKernelSetCacheConfig);
    (void)config;
    return sim_device(device) ? function_check((CUfunction)kernel) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTER_WITH(cuKernelGetName, name, kernel);
    return function_get_name(name, (CUfunction)kernel);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SIM_ENTER_WITH(cuKernelGetLibrary, library);
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check((CUfunction)kernel);
    if (result == CUDA_SUCCESS)
        *library = (CUlibrary)((CUfunction)kernel)->code;
    return result;
}

static CUresult function_occupancy(int *blocks, CUfunction function, int block_size, size_t shared_bytes)
{
    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check(function);
    if (result != CUDA_SUCCESS)
        return result;
    *blocks = 0;
    if (block_size > SIM_THREADS_PER_BLOCK || shared_bytes > sim_shared_in_all())
        return CUDA_SUCCESS;
    int threads = (block_size + WARP - 1) / WARP * WARP, n = sim_kernel_capability()->blocks;
    if (n > sim_kernel_capability()->threads / threads)
        n = sim_kernel_capability()->threads / threads;
    if (shared_bytes && (size_t)n > sim_shared_in_all() / (shared_bytes + sim_shared_besides()))
        n = (int)(sim_shared_in_all() / (shared_bytes + sim_shared_besides()));
    *blocks = n;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
    size_t shared_bytes)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return function_occupancy(blocks, function, block_size, shared_bytes);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
    size_t shared_bytes, unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
               ? CUDA_ERROR_INVALID_VALUE
               : function_occupancy(blocks, function, block_size, shared_bytes);
}

static CUresult function_block_size(int *min_grid, int *block_size, CUfunction function,
    CUoccupancyB2DSize shared_for_block, size_t shared_bytes, int limit)
{
    if (!min_grid || !block_size || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    int size = limit && limit < SIM_THREADS_PER_BLOCK ? limit : SIM_THREADS_PER_BLOCK, blocks;
    if (shared_for_block)
        shared_bytes = shared_for_block(size);
    CUresult result = function_occupancy(&blocks, function, size, shared_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    *block_size = size;
    *min_grid = sim_model_processors(sim.config.model) * (blocks ? blocks : 1);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *min_grid, int *block_size, CUfunction function,
    CUoccupancyB2DSize shared_for_block, size_t shared_bytes, int block_limit)
{
    SIM_ENTER(cuOccupancyMaxPotentialBlockSize);
    return function_block_size(min_grid, block_size, function, shared_for_block, shared_bytes, block_limit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block_size, CUfunction function,
    CUoccupancyB2DSize shared_for_block, size_t shared_bytes, int block_limit, unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
    return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
               ? CUDA_ERROR_INVALID_VALUE
               : function_block_size(min_grid, block_size, function, shared_for_block, shared_bytes, block_limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *shared_bytes, CUfunction function, int blocks,
    int block_size)
{
    SIM_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
    if (!shared_bytes || blocks <= 0 || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check(function);
    size_t share = sim_shared_in_all() / (size_t)blocks;
    if (result == CUDA_SUCCESS)
        *shared_bytes = share > sim_shared_besides() ? share - sim_shared_besides() : 0;
    return result;
}

/* Thread block clusters came with compute capability 9.0. */
CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config)
{
    SIM_ENTER_WITH(cuOccupancyMaxPotentialClusterSize, size, function, config);
    if (!size || !config)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = function_check(function);
    if (result == CUDA_SUCCESS)
        *size = 1;
    return result;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config)
{
    SIM_ENTER_WITH(cuOccupancyMaxActiveClusters, clusters, function, config);
    if (!clusters || !config)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t flat, threads;
    if (__builtin_mul_overflow((uint64_t)config->blockDimX, config->blockDimY, &flat) ||
        __builtin_mul_overflow(flat, config->blockDimZ, &threads) || threads > INT_MAX)
        threads = INT_MAX;
    return function_occupancy(clusters, function, (int)threads, config->sharedMemBytes);
}
