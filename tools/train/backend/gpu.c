#include "backend/gpu.h"
#include "memory/cuda_rt.h"
#include "gpu_source.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum library { CUDA, NVRTC, CUBLAS, LIBRARY_COUNT };

/* Newest first. */
static const char *const library_names[LIBRARY_COUNT][2] = {
    [CUDA] = {"libcuda.so.1"},
    [NVRTC] = {"libnvrtc.so.13", "libnvrtc.so.12"},
    [CUBLAS] = {"libcublas.so.13", "libcublas.so.12"},
};

/* Numbers of the libraries' ABI (cuda.h, cublas_api.h, library_types.h; the same in CUDA 12 and 13). */
enum { ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76, OP_PLAIN = 0, OP_TRANSPOSED = 1, TYPE_F32 = 0, TYPE_BF16 = 14,
       COMPUTE_F32 = 68, ALGORITHM_DEFAULT = -1 };

enum { BLOCKS = 1056, THREADS = 256, WORKSPACE = 32 << 20, PROBE = 512 };

/* Launched after the kernel of kernels.def that they belong to. */
enum further { FURTHER_QUERIES, FURTHER_KEYS, FURTHER_COUNT };
static const char *const further_names[FURTHER_COUNT] = {"gpu_attention_gradient_queries",
                                                         "gpu_attention_gradient_keys"};

static struct {
#define GPU_CALL(library, name, parameters) int(*name) parameters;
#include "backend/gpu_libs.def"
#undef GPU_CALL
    void *libraries[LIBRARY_COUNT];
    void *module, *cublas, *workspace;
    void *functions[KERNEL_COUNT], *further[FURTHER_COUNT];
    char fault[128];
} gpu;

static int open_libraries(enum library first, enum library last, char *error, size_t error_size)
{
    for (int i = (int)first; i <= (int)last; i++)
        for (int j = 0; j < 2 && !gpu.libraries[i]; j++)
            if (library_names[i][j])
                gpu.libraries[i] = dlopen(library_names[i][j], RTLD_NOW | RTLD_LOCAL);
    void *symbol;
    const char *missing = NULL;
    int lacks = -1;
#define GPU_CALL(library, name, parameters)                                                                            \
    symbol = gpu.libraries[library] ? dlsym(gpu.libraries[library], #name) : NULL;                                     \
    memcpy(&gpu.name, &symbol, sizeof symbol);                                                                         \
    if (!symbol && !missing && library >= first && library <= last) {                                                  \
        missing = #name;                                                                                               \
        lacks = library;                                                                                               \
    }
#include "backend/gpu_libs.def"
#undef GPU_CALL
    if (!missing)
        return 0;
    if (gpu.libraries[lacks])
        snprintf(error, error_size, "%s has no %s; CUDA 12 or 13 is needed", library_names[lacks][0], missing);
    else
        snprintf(error, error_size, "arithmetic on the GPU needs %s%s%s of the CUDA toolkit, found by the loader "
                 "(LD_LIBRARY_PATH); --dry needs none of it", library_names[lacks][0],
                 library_names[lacks][1] ? " or " : "", library_names[lacks][1] ? library_names[lacks][1] : "");
    return -1;
}

static void print_log(void *program)
{
    size_t size = 0;
    char *log = gpu.nvrtcGetProgramLogSize(program, &size) || size < 2 ? NULL : calloc(1, size + 1);
    if (log && !gpu.nvrtcGetProgramLog(program, log))
        fprintf(stderr, "%s\n", log);
    free(log);
}

int gpu_compile(int major, int minor, char **ret_image, size_t *ret_bytes, char *error, size_t error_size)
{
    if (open_libraries(NVRTC, NVRTC, error, error_size))
        return -1;
    char architecture[48], defines[4][48];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
    const struct {
        const char *name;
        size_t value;
    } values[4] = {{"KERNEL_SCALARS", KERNEL_SCALARS}, {"KERNEL_COUNTS", KERNEL_COUNTS},
                   {"KERNEL_POINTERS", KERNEL_POINTERS}, {"KERNEL_ARGS_BYTES", sizeof(struct kernel_args)}};
    const char *options[6] = {architecture, "--std=c++17"};
    for (int i = 0; i < 4; i++) {
        snprintf(defines[i], sizeof defines[i], "-D%s=%zu", values[i].name, values[i].value);
        options[2 + i] = defines[i];
    }
    void *program = NULL;
    char *image = NULL;
    size_t bytes = 0;
    int rc = gpu.nvrtcCreateProgram(&program, gpu_source, "backend_gpu.cu", 0, NULL, NULL);
    if (!rc && (rc = gpu.nvrtcCompileProgram(program, 6, options)))
        print_log(program);
    if (!rc)
        rc = gpu.nvrtcGetCUBINSize(program, &bytes);
    if (!rc && !(image = malloc(bytes ? bytes : 1)))
        abort();
    if (!rc)
        rc = gpu.nvrtcGetCUBIN(program, image);
    if (program)
        gpu.nvrtcDestroyProgram(&program);
    if (rc) {
        free(image);
        snprintf(error, error_size, "NVRTC could not compile the kernels for compute capability %d.%d (error %d)",
                 major, minor, rc);
        return -1;
    }
    *ret_image = image;
    *ret_bytes = bytes;
    return 0;
}

static int load_kernels(char *error, size_t error_size)
{
    static const char *const names[KERNEL_COUNT] = {
#define KERNEL(name, text) [KERNEL_##name] = "gpu_" #name,
#include "backend/kernels.def"
#undef KERNEL
    };
    int device = 0, major = 0, minor = 0;
    size_t bytes;
    char *image;
    if (gpu.cuCtxGetDevice(&device) || gpu.cuDeviceGetAttribute(&major, ATTRIBUTE_MAJOR, device) ||
        gpu.cuDeviceGetAttribute(&minor, ATTRIBUTE_MINOR, device)) {
        snprintf(error, error_size, "the device does not say what it can compute");
        return -1;
    }
    if (gpu_compile(major, minor, &image, &bytes, error, error_size))
        return -1;
    int rc = gpu.cuModuleLoadData(&gpu.module, image);
    for (int i = 0; i < KERNEL_COUNT && !rc; i++)
        rc = gpu.cuModuleGetFunction(&gpu.functions[i], gpu.module, names[i]);
    for (int i = 0; i < FURTHER_COUNT && !rc; i++)
        rc = gpu.cuModuleGetFunction(&gpu.further[i], gpu.module, further_names[i]);
    free(image);
    if (rc)
        snprintf(error, error_size, "the driver does not take the compiled kernels (error %d)", rc);
    return rc ? -1 : 0;
}

static const char *gpu_launch(void *function, const struct kernel_args *args)
{
    struct kernel_args copy = *args;
    void *parameters[] = {&copy};
    int rc = gpu.cuLaunchKernel(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL);
    if (!rc)
        return NULL;
    snprintf(gpu.fault, sizeof gpu.fault, "cuLaunchKernel returned %d", rc);
    return gpu.fault;
}

/* A simulated GPU takes kernels and does nothing: losses would be made of what happened to lie in memory. */
static int gpu_probe_card(const struct cuda_rt *rt, char *error, size_t error_size)
{
    float *memory = NULL, *seen = NULL;
    bool runs = false;
    if (!rt->cudaMalloc((void **)&memory, PROBE) && !rt->cudaMallocHost((void **)&seen, PROBE)) {
        seen[0] = 0;
        const struct kernel_args fill = {.kernel = KERNEL_fill, .f = {42}, .n = {1}, .p = {memory}};
        runs = !gpu_launch(gpu.functions[KERNEL_fill], &fill) &&
               !rt->cudaMemcpyAsync(seen, memory, sizeof *seen, CUDA_COPY_TO_HOST, NULL) &&
               !rt->cudaStreamSynchronize(NULL) && seen[0] == 42;
    }
    rt->cudaFreeHost(seen);
    rt->cudaFree(memory);
    if (!runs)
        snprintf(error, error_size,
                 "kernels do nothing on this device, which may be a simulated one; use --backend cpu");
    return runs ? 0 : -1;
}

static void gpu_stop(const struct cuda_rt *rt)
{
    if (gpu.cublas)
        gpu.cublasDestroy_v2(gpu.cublas);
    if (gpu.module)
        gpu.cuModuleUnload(gpu.module);
    if (gpu.workspace)
        rt->cudaFree(gpu.workspace);
    gpu.cublas = gpu.module = gpu.workspace = NULL;
}

static int gpu_start(const struct cuda_rt *rt, int threads, char *error, size_t error_size)
{
    (void)threads;
    rt->cudaFree(NULL); /* makes the runtime's context where there is none yet */
    if (open_libraries(CUDA, CUBLAS, error, error_size) || load_kernels(error, error_size) ||
        gpu_probe_card(rt, error, error_size)) {
        gpu_stop(rt);
        return -1;
    }
    /* A workspace of its own makes cuBLAS's sums the same in every run. */
    int rc = gpu.cublasCreate_v2(&gpu.cublas);
    if (!rc)
        rc = rt->cudaMalloc(&gpu.workspace, WORKSPACE);
    if (!rc)
        rc = gpu.cublasSetStream_v2(gpu.cublas, NULL);
    if (!rc)
        rc = gpu.cublasSetWorkspace_v2(gpu.cublas, gpu.workspace, WORKSPACE);
    if (!rc)
        return 0;
    snprintf(error, error_size, "cuBLAS cannot be used: error %d", rc);
    gpu_stop(rt);
    return -1;
}

/* Rows one behind the other are to cuBLAS the columns of the transposed matrix: it makes that of the product. */
static const char *gpu_multiply(const struct kernel_args *a)
{
    const int rows = (int)a->n[0], columns = (int)a->n[1], inner = (int)a->n[2];
    const int type = a->dtype == DTYPE_F32 ? TYPE_F32 : TYPE_BF16;
    const float alpha = 1, beta = a->p[3] ? 1 : 0;
    const char *fault = a->p[3] ? gpu_launch(gpu.functions[KERNEL_gemm], a) : NULL;
    if (fault)
        return fault;
    int rc = gpu.cublasGemmEx(gpu.cublas, a->n[4] ? OP_TRANSPOSED : OP_PLAIN, a->n[3] ? OP_TRANSPOSED : OP_PLAIN,
                              columns, rows, inner, &alpha, a->p[2], type, a->n[4] ? inner : columns, a->p[1], type,
                              a->n[3] ? rows : inner, &beta, a->p[0], type, columns, COMPUTE_F32, ALGORITHM_DEFAULT);
    if (!rc)
        return NULL;
    snprintf(gpu.fault, sizeof gpu.fault, "cublasGemmEx returned %d", rc);
    return gpu.fault;
}

static const char *gpu_queue(const struct kernel_args *a)
{
    if (a->kernel == KERNEL_gemm)
        return gpu_multiply(a);
    const char *fault = gpu_launch(gpu.functions[a->kernel], a);
    for (int i = 0; a->kernel == KERNEL_attention_gradient && i < FURTHER_COUNT && !fault; i++)
        fault = gpu_launch(gpu.further[i], a);
    return fault;
}

const struct arithmetic arithmetic_gpu = {"gpu", 1U << DTYPE_F32 | 1U << DTYPE_BF16, false, gpu_start, gpu_stop, NULL,
    gpu_queue};
