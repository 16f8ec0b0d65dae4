// A GPU's libraries just large enough for the trainer: the driver, NVRTC and cuBLAS, under three names. The kernels are
// compiled here for the host; a block's threads are fibers that change at each barrier, so that what a kernel does is
// right for several threads and several blocks. Work is queued on the stand-in runtime's stream, in its order.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define KERNEL_SCALARS 2
#define KERNEL_COUNTS 7
#define KERNEL_POINTERS 12
#define KERNEL_ARGS_BYTES 168

struct dimensions {
    unsigned x;
};
static struct dimensions threadIdx, blockIdx, blockDim = {4}, gridDim = {2};
static void __syncthreads();

#include "../../../tools/train/backend/gpu.cu"

enum { FIBERS = 4, STACK = 64 << 10 };

typedef void kernel_function(const struct kernel_args);

static struct {
    ucontext_t scheduler, fiber[FIBERS];
    bool done[FIBERS];
    char stack[FIBERS][STACK];
    kernel_function *kernel;
    const struct kernel_args *args;
} block;

static void __syncthreads()
{
    swapcontext(&block.fiber[threadIdx.x], &block.scheduler);
}

static void run_fiber()
{
    unsigned mine = threadIdx.x;
    block.kernel(*block.args);
    block.done[mine] = true;
}

static void run_block()
{
    for (unsigned t = 0; t < FIBERS; t++) {
        getcontext(&block.fiber[t]);
        block.fiber[t].uc_stack.ss_sp = block.stack[t];
        block.fiber[t].uc_stack.ss_size = STACK;
        block.fiber[t].uc_link = &block.scheduler;
        makecontext(&block.fiber[t], run_fiber, 0);
        block.done[t] = false;
    }
    for (unsigned left = FIBERS; left;) {
        left = 0;
        for (threadIdx.x = 0; threadIdx.x < FIBERS; threadIdx.x++) {
            unsigned current = threadIdx.x;
            if (!block.done[current])
                swapcontext(&block.scheduler, &block.fiber[current]);
            threadIdx.x = current;
            left += !block.done[current];
        }
    }
}

struct launch {
    kernel_function *kernel;
    struct kernel_args args;
};

static void run_launch(void *argument)
{
    struct launch *launch = (struct launch *)argument;
    block.kernel = launch->kernel;
    block.args = &launch->args;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        run_block();
    delete launch;
}

static int enqueue(void (*run)(void *), void *argument)
{
    static int (*queue)(void *, void (*)(void *), void *);
    if (!queue)
        *(void **)&queue = dlsym(dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD), "cudaLaunchHostFunc");
    return queue(nullptr, run, argument);
}

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 9 : 0;
    return device;
}

EXPORT int cuModuleLoadData(void **module, const void *image)
{
    *module = &block;
    return strcmp((const char *)image, "compiled");
}

EXPORT int cuModuleUnload(void *module)
{
    return module != &block;
}

static const struct {
    const char *name;
    kernel_function *kernel;
} kernels[] = {
#undef KERNEL
#define KERNEL(name, text) {"gpu_" #name, gpu_##name},
#include "../../../tools/train/backend/kernels.def"
    KERNEL(attention_gradient_queries, "") KERNEL(attention_gradient_keys, "")
};

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    for (const auto &entry : kernels)
        if (!strcmp(entry.name, name)) {
            *function = (void *)entry.kernel;
            return 0;
        }
    return 500;
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra)
{
    (void)shared, (void)extra;
    if (gx < 1 || gy != 1 || gz != 1 || bx < 1 || by != 1 || bz != 1 || stream)
        return 1;
    return getenv("STUB_GPU_IDLE")
               ? 0
               : enqueue(run_launch, new launch{(kernel_function *)function, *(struct kernel_args *)parameters[0]});
}

EXPORT int nvrtcCreateProgram(void **program, const char *source, const char *, int, const char *const *,
                              const char *const *)
{
    *program = &block;
    return !strstr(source, "KERNEL(attention)");
}

EXPORT int nvrtcCompileProgram(void *, int count, const char *const *options)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(options[i], "--gpu-architecture=sm_90"))
            return getenv("STUB_GPU_REFUSES") ? 6 : 0;
    return 5;
}

EXPORT int nvrtcGetProgramLogSize(void *, size_t *size)
{
    *size = 1;
    return 0;
}

EXPORT int nvrtcGetProgramLog(void *, char *log)
{
    *log = 0;
    return 0;
}

EXPORT int nvrtcGetCUBINSize(void *, size_t *size)
{
    *size = sizeof "compiled";
    return 0;
}

EXPORT int nvrtcGetCUBIN(void *, char *cubin)
{
    strcpy(cubin, "compiled");
    return 0;
}

EXPORT int nvrtcDestroyProgram(void **program)
{
    *program = nullptr;
    return 0;
}

EXPORT int cublasCreate_v2(void **handle)
{
    *handle = &block;
    return 0;
}

EXPORT int cublasDestroy_v2(void *)
{
    return 0;
}

EXPORT int cublasSetStream_v2(void *, void *stream)
{
    return stream != nullptr;
}

EXPORT int cublasSetWorkspace_v2(void *, void *workspace, size_t)
{
    return !workspace;
}

// As cuBLAS documents it: matrices by columns, c = alpha op(a) op(b) + beta c.
struct product {
    int op_a, op_b, m, n, k, dtype;
    const void *a, *b;
    void *c;
    int lda, ldb, ldc;
    float beta;
};

static void run_product(void *argument)
{
    struct product *p = (struct product *)argument;
    for (int column = 0; column < p->n; column++)
        for (int row = 0; row < p->m; row++) {
            float sum = 0;
            for (int k = 0; k < p->k; k++)
                sum += load_as(p->a, p->dtype, p->op_a ? (i64)row * p->lda + k : (i64)k * p->lda + row) *
                       load_as(p->b, p->dtype, p->op_b ? (i64)k * p->ldb + column : (i64)column * p->ldb + k);
            i64 at = (i64)column * p->ldc + row;
            store_as(p->c, p->dtype, at, p->beta != 0 ? sum + p->beta * load_as(p->c, p->dtype, at) : sum);
        }
    delete p;
}

EXPORT int cublasGemmEx(void *, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int a_type,
                        int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                        int compute, int)
{
    if (a_type != b_type || a_type != c_type || compute != 68 || *(const float *)alpha != 1 ||
        (a_type != 0 && a_type != 14) || lda < (op_a ? k : m) || ldb < (op_b ? n : k) || ldc < m)
        return 7;
    return enqueue(run_product, new product{op_a, op_b, m, n, k, a_type ? BF16 : F32, a, b, c, lda, ldb, ldc,
                                            *(const float *)beta});
}
