/* Kernels: what is asked about them, and launches. */
#include <limits.h>

#include "graphs/graph.h"
#include "kernels/integers.h"
#include "kernels/declared.h"
#include "kernels/module.h"

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

enum { WARP = 32, THREADS_PER_BLOCK = 1024, KIB = 1024 };

static const struct sim_capability *capability(void)
{
    return sim_model_capability(sim.config.model);
}

/* Shared memory of a multiprocessor, what each block takes of it besides its own, and the most that one may have. */
static size_t shared_in_all(void)
{
    return (size_t)capability()->shared_kib * KIB;
}

static size_t shared_besides(void)
{
    return (size_t)capability()->reserved_kib * KIB;
}

static size_t shared_of_block(void)
{
    return shared_in_all() - shared_besides();
}

struct kernel {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
};

static void run(struct sim_work *work)
{
    sim_kernel_run((void *)(work->payload + sizeof(struct kernel)));
}

static void run_integers(struct sim_work *work)
{
    sim_integers_run(work->payload + sizeof(struct kernel));
}

static CUresult new_work(const struct kernel *kernel, void **params, void **extra, CUcontext context,
    struct sim_work **ret)
{
    const unsigned *grid = kernel->grid, *block = kernel->block;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    CUfunction f;
    CUresult result = sim_function_get(kernel->function, &f);
    if (result == CUDA_SUCCESS && context && f->code->context && f->code->context != sim_context_root(context))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS &&
        (!grid[0] || !grid[1] || !grid[2] || grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535 || !threads ||
            threads > THREADS_PER_BLOCK || block[2] > 64 || kernel->shared_bytes > shared_of_block()))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_kernel *declared = sim_kernel_find(f->name);
    const struct sim_integers *integers = &f->integers;
    bool done = !declared && params && integers->form != SIM_FORM_NONE;
    size_t kept = done ? sim_integers_bytes(integers) : sim_kernel_bytes(declared);
    struct sim_work *work = sim_work_new(sizeof *kernel + kept, declared ? run : done ? run_integers : NULL, NULL);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool said = sim_touches_take(work);
    if (declared && !sim_kernel_arguments(declared, params, extra, work->payload + sizeof *kernel, work)) {
        sim_work_free(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (done)
        sim_integers_keep(integers, params, grid, work->payload + sizeof *kernel);
    work->name = sim_kernel_name(f->name);
    work->unknown = !said && !declared;
    *(struct kernel *)work->payload = *kernel;
    work->busy_ns = sim.config.kernel_ns;
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_KERNEL;
    *ret = work;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_work(const CUDA_KERNEL_NODE_PARAMS *p, struct sim_work **ret)
{
    return new_work(&(struct kernel){.function = p->func ? p->func : (CUfunction)p->kern,
                        .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                        .block = {p->blockDimX, p->blockDimY, p->blockDimZ}, .shared_bytes = p->sharedMemBytes},
        p->kernelParams, p->extra, NULL, ret);
}

/* The values of a kernel's arguments are not given back: nobody here knows their sizes, unless it was declared. */
void sim_kernel_params(const struct sim_work *work, CUDA_KERNEL_NODE_PARAMS *ret)
{
    const struct kernel *k = (const struct kernel *)work->payload;
    *ret = (CUDA_KERNEL_NODE_PARAMS){.func = k->function, .gridDimX = k->grid[0], .gridDimY = k->grid[1],
        .gridDimZ = k->grid[2], .blockDimX = k->block[0], .blockDimY = k->block[1], .blockDimZ = k->block[2],
        .sharedMemBytes = k->shared_bytes};
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
    CUstream stream_handle, void **params, void **extra)
{
    const struct kernel kernel = {.function = handle, .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]}, .shared_bytes = shared_bytes};
    sim_lock();
    CUstream stream;
    struct sim_work *work;
    CUfunction f;
    CUresult result = sim_function_get(handle, &f);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream_handle, &stream);
    if (result == CUDA_SUCCESS)
        result = new_work(&kernel, params, extra, stream->context, &work);
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, work, NULL);
    sim_unlock();
    return result;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params, void **extra)
{
    SIM_ENTER_WITH(cuLaunchKernel, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return launch(f, grid, block, shared_bytes, stream, params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params, void **extra)
{
    return cuLaunchKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, PER_THREAD(stream),
        params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params)
{
    SIM_ENTER_WITH(cuLaunchCooperativeKernel, f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
        stream);
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    return launch(f, grid, block, shared_bytes, stream, params, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
    void **params)
{
    return cuLaunchCooperativeKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
        PER_THREAD(stream), params);
}

static CUresult launch_config(const CUlaunchConfig *config, CUfunction f, void **params, void **extra,
    bool per_thread)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
    const unsigned block[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
    return launch(f, grid, block, config->sharedMemBytes, per_thread ? PER_THREAD(config->hStream) : config->hStream,
        params, extra);
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

static CUresult get_attribute(int *value, CUfunction_attribute attribute, CUfunction handle)
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

static CUresult set_attribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    if ((unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
        (unsigned)attribute >= CU_FUNC_ATTRIBUTE_MAX ||
        (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && (value < 0 || (size_t)value > shared_of_block())))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUfunction f;
    CUresult result = sim_function_get(handle, &f);
    if (result == CUDA_SUCCESS)
        f->attributes[attribute] = value;
    sim_unlock();
    return result;
}

static CUresult check(CUfunction handle)
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
    return get_attribute(value, attribute, function);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    return set_attribute(function, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    SIM_ENTER(cuFuncSetCacheConfig);
    (void)config;
    return check(function);
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    SIM_ENTER(cuFuncSetSharedMemConfig);
    (void)config;
    return check(function);
}

static CUresult get_name(const char **name, CUfunction handle)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(handle);
    if (result == CUDA_SUCCESS)
        *name = handle->name;
    return result;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_ENTER_WITH(cuFuncGetName, name, function);
    return get_name(name, function);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_ENTER(cuFuncGetModule);
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(function);
    if (result == CUDA_SUCCESS)
        *module = (CUmodule)function->code;
    return result;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    SIM_ENTER_WITH(cuFuncIsLoaded, state, function);
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(function);
    if (result == CUDA_SUCCESS)
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return result;
}

CUresult cuFuncLoad(CUfunction function)
{
    SIM_ENTER_WITH(cuFuncLoad, function);
    return check(function);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    SIM_ENTER_WITH(cuKernelGetFunction, function, kernel);
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check((CUfunction)kernel);
    if (result == CUDA_SUCCESS)
        *function = (CUfunction)kernel;
    return result;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
    SIM_ENTER(cuKernelGetAttribute);
    return sim_device(device) ? get_attribute(value, attribute, (CUfunction)kernel) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
    SIM_ENTER(cuKernelSetAttribute);
    return sim_device(device) ? set_attribute((CUfunction)kernel, attribute, value) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
    SIM_ENTER(cuKernelSetCacheConfig);
    (void)config;
    return sim_device(device) ? check((CUfunction)kernel) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel)
{
    SIM_ENTER_WITH(cuKernelGetName, name, kernel);
    return get_name(name, (CUfunction)kernel);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel)
{
    SIM_ENTER_WITH(cuKernelGetLibrary, library);
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check((CUfunction)kernel);
    if (result == CUDA_SUCCESS)
        *library = (CUlibrary)((CUfunction)kernel)->code;
    return result;
}

static CUresult occupancy(int *blocks, CUfunction function, int block_size, size_t shared_bytes)
{
    if (!blocks || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(function);
    if (result != CUDA_SUCCESS)
        return result;
    *blocks = 0;
    if (block_size > THREADS_PER_BLOCK || shared_bytes > shared_in_all())
        return CUDA_SUCCESS;
    int threads = (block_size + WARP - 1) / WARP * WARP, n = capability()->blocks;
    if (n > capability()->threads / threads)
        n = capability()->threads / threads;
    if (shared_bytes && (size_t)n > shared_in_all() / (shared_bytes + shared_besides()))
        n = (int)(shared_in_all() / (shared_bytes + shared_besides()));
    *blocks = n;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size,
    size_t shared_bytes)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    return occupancy(blocks, function, block_size, shared_bytes);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
    size_t shared_bytes, unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE ? CUDA_ERROR_INVALID_VALUE
                                                         : occupancy(blocks, function, block_size, shared_bytes);
}

static CUresult block_size_for(int *min_grid, int *block_size, CUfunction function,
    CUoccupancyB2DSize shared_for_block, size_t shared_bytes, int limit)
{
    if (!min_grid || !block_size || limit < 0)
        return CUDA_ERROR_INVALID_VALUE;
    int size = limit && limit < THREADS_PER_BLOCK ? limit : THREADS_PER_BLOCK, blocks;
    if (shared_for_block)
        shared_bytes = shared_for_block(size);
    CUresult result = occupancy(&blocks, function, size, shared_bytes);
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
    return block_size_for(min_grid, block_size, function, shared_for_block, shared_bytes, block_limit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *min_grid, int *block_size, CUfunction function,
    CUoccupancyB2DSize shared_for_block, size_t shared_bytes, int block_limit, unsigned int flags)
{
    SIM_ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
    return flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE
               ? CUDA_ERROR_INVALID_VALUE
               : block_size_for(min_grid, block_size, function, shared_for_block, shared_bytes, block_limit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *shared_bytes, CUfunction function, int blocks,
    int block_size)
{
    SIM_ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
    if (!shared_bytes || blocks <= 0 || block_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(function);
    size_t share = shared_in_all() / (size_t)blocks;
    if (result == CUDA_SUCCESS)
        *shared_bytes = share > shared_besides() ? share - shared_besides() : 0;
    return result;
}

/* Thread block clusters came with compute capability 9.0. */
CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config)
{
    SIM_ENTER_WITH(cuOccupancyMaxPotentialClusterSize, size, function, config);
    if (!size || !config)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check(function);
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
    return occupancy(clusters, function, (int)threads, config->sharedMemBytes);
}
