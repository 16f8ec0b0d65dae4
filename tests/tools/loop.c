/* Takes and frees memory of device 0 in a pattern that repeats, through the driver API: ROUNDS times, or until it is
   killed for 0. Then ends as told: return, or _exit. */
#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 64 };

static void *function(void *driver, const char *name)
{
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "loop: no %s\n", name);
        exit(3);
    }
    return found;
}

static void check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "loop: %d\n", (int)result);
        exit(4);
    }
}

int main(int argc, char **argv)
{
    CUdeviceptr block[BLOCKS] = {0};
    CUcontext context;
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "loop: %s\n", dlerror());
        return 2;
    }
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))function(driver, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))function(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*current)(CUcontext) = (CUresult(*)(CUcontext))function(driver, "cuCtxSetCurrent");
    CUresult (*take)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))function(driver, "cuMemAlloc_v2");
    CUresult (*give)(CUdeviceptr) = (CUresult(*)(CUdeviceptr))function(driver, "cuMemFree_v2");
    check(init(0));
    check(retain(&context, 0));
    check(current(context));
    unsigned random = 1;
    for (long i = 0; !rounds || i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        CUdeviceptr *at = &block[random >> 26];
        if (*at)
            check(give(*at));
        check(take(at, ((size_t)1 << (8 + (random >> 20) % 14)) + (random >> 8) % 1000));
        if (i == 1000) {
            puts("1000");
            fflush(stdout);
        }
    }
    if (argc > 2 && !strcmp(argv[2], "_exit"))
        _exit(0);
    return 0;
}
