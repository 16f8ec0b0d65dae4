#include "work/kernel_launch.h"

#include "kernels/declared.h"
#include "kernels/integers.h"
#include "kernels/module.h"
#include "space/span.h"
#include "work/lost.h"
#include "work/program_stream.h"
#include "work/submit.h"

enum { KIB = 1024 };

const struct sim_capability *sim_kernel_capability(void)
{
    return sim_model_capability(sim.config.model);
}

/* Shared memory of a multiprocessor, what each block takes of it besides its own, and the most that one may have. */
size_t sim_shared_in_all(void)
{
    return (size_t)sim_kernel_capability()->shared_kib * KIB;
}

size_t sim_shared_besides(void)
{
    return (size_t)sim_kernel_capability()->reserved_kib * KIB;
}

size_t sim_shared_of_block(void)
{
    return sim_shared_in_all() - sim_shared_besides();
}

struct kernel {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    uint64_t lost; /* an address that it touches and that has no memory; 0: there is none */
};

/* Looks for the memory that the kernel is known to touch, as it is when the kernel runs. */
static bool kernel_finds_memory(struct sim_work *work)
{
    struct kernel *kernel = (struct kernel *)work->payload;
    sim_lock();
    for (unsigned i = 0; i < work->touch_count && !kernel->lost; i++) {
        const struct sim_touch *touch = &work->touches[i];
        kernel->lost = sim_span_lost(touch->address, touch->bytes, touch->write);
    }
    sim_unlock();
    return !kernel->lost;
}

static void kernel_run(struct sim_work *work)
{
    if (kernel_finds_memory(work))
        sim_kernel_run((void *)(work->payload + sizeof(struct kernel)));
}

/* A kernel of which it was said what it touches, and not what it does. */
static void kernel_run_touches(struct sim_work *work)
{
    (void)kernel_finds_memory(work);
}

static void kernel_finish(struct sim_work *work)
{
    const struct kernel *kernel = (const struct kernel *)work->payload;
    if (kernel->lost)
        sim_work_lost(work, kernel->lost);
}

static void kernel_run_integers(struct sim_work *work)
{
    struct kernel *kernel = (struct kernel *)work->payload;
    kernel->lost = sim_integers_run(work->payload + sizeof *kernel);
}

static CUresult kernel_new_work(const struct kernel *kernel, void **params, void **extra, CUcontext context,
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
            threads > SIM_THREADS_PER_BLOCK || block[2] > 64 || kernel->shared_bytes > sim_shared_of_block()))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    const struct sim_kernel *declared = sim_kernel_find(f->name);
    const struct sim_integers *integers = &f->integers;
    bool done = !declared && params && integers->form != SIM_FORM_NONE;
    size_t kept = done ? sim_integers_bytes(integers) : sim_kernel_bytes(declared);
    struct sim_work *work = sim_work_new(sizeof *kernel + kept,
        declared ? kernel_run
        : done   ? kernel_run_integers
                 : NULL,
        kernel_finish);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool said = sim_touches_take(work);
    if (said && !work->run)
        work->run = kernel_run_touches;
    if (declared && !sim_kernel_arguments(declared, params, extra, work->payload + sizeof *kernel, work)) {
        sim_work_free(work);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (done)
        sim_integers_keep(integers, params, grid, work->payload + sizeof *kernel);
    work->name = sim_kernel_name(f->name);
    work->unknown = !said && !declared;
    *(struct kernel *)work->payload = *kernel; /* it has not run: nothing is lost */
    work->busy_ns = sim.config.kernel_ns;
    work->capturable = true;
    work->node = CU_GRAPH_NODE_TYPE_KERNEL;
    *ret = work;
    return CUDA_SUCCESS;
}

CUresult sim_kernel_work(const CUDA_KERNEL_NODE_PARAMS *p, struct sim_work **ret)
{
    return kernel_new_work(&(struct kernel){.function = p->func ? p->func : (CUfunction)p->kern,
                               .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                               .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                               .shared_bytes = p->sharedMemBytes},
        p->kernelParams, p->extra, NULL, ret);
}

/* The values of a kernel's arguments are not given back: nobody here knows their sizes, unless it was declared. */
void sim_kernel_params(const struct sim_work *work, CUDA_KERNEL_NODE_PARAMS *ret)
{
    const struct kernel *k = (const struct kernel *)work->payload;
    *ret = (CUDA_KERNEL_NODE_PARAMS){.func = k->function,
        .gridDimX = k->grid[0],
        .gridDimY = k->grid[1],
        .gridDimZ = k->grid[2],
        .blockDimX = k->block[0],
        .blockDimY = k->block[1],
        .blockDimZ = k->block[2],
        .sharedMemBytes = k->shared_bytes};
}

CUresult sim_launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
    CUstream stream_handle, void **params, void **extra)
{
    const struct kernel kernel = {.function = handle,
        .grid = {grid[0], grid[1], grid[2]},
        .block = {block[0], block[1], block[2]},
        .shared_bytes = shared_bytes};
    sim_lock();
    CUstream stream;
    struct sim_work *work;
    CUfunction f;
    CUresult result = sim_function_get(handle, &f);
    if (result == CUDA_SUCCESS)
        result = sim_stream_get(stream_handle, &stream);
    if (result == CUDA_SUCCESS)
        result = kernel_new_work(&kernel, params, extra, stream->context, &work);
    if (result == CUDA_SUCCESS)
        result = sim_submit(stream, work, NULL);
    sim_unlock();
    return result;
}
