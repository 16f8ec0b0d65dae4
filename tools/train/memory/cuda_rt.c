#include "memory/cuda_rt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define WAY_OUT "run it on a simulated GPU: segalloc run --sim 24GiB -- segalloc-train ..."

int cuda_rt_open(struct cuda_rt *ret_rt, int number, char *error, size_t error_size)
{
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12"};
    struct cuda_rt rt = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names && !rt.library; i++)
        rt.library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!rt.library) {
        snprintf(error, error_size, "no CUDA here (neither libcudart.so.13 nor .12); " WAY_OUT);
        return -1;
    }
    const char *missing = NULL;
    void *symbol;
#define CUDA_RT(name, result, parameters)                                                                              \
    symbol = dlsym(rt.library, #name);                                                                                 \
    memcpy(&rt.name, &symbol, sizeof symbol);                                                                          \
    if (!symbol)                                                                                                       \
        missing = #name;
#include "memory/cuda_rt.def"
#undef CUDA_RT
    if (missing) {
        snprintf(error, error_size, "the CUDA runtime found has no %s; CUDA 12 or 13 is needed, or " WAY_OUT, missing);
        return -1;
    }
    int count = 0;
    int rc = rt.cudaGetDeviceCount(&count);
    if (rc == CUDA_SUCCESS_VALUE && count > 0)
        rc = rt.cudaSetDevice(number % count);
    if (rc != CUDA_SUCCESS_VALUE || count == 0) {
        snprintf(error, error_size, "no CUDA device (%s); " WAY_OUT,
                 rc != CUDA_SUCCESS_VALUE ? rt.cudaGetErrorString(rc) : "none found");
        return -1;
    }
    *ret_rt = rt;
    return 0;
}
