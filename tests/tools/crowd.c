/* Several threads take and free memory of one or two devices at the same time, and now and then ask how much there is:
   THREADS ROUNDS DEVICES LARGEST (bytes) [trim | handle | RUNTIME]. With `trim` they also give idle memory back now and
   then. With `handle` one of them asks for legacy handles of its memory in the second half. With the library RUNTIME
   they allocate by cudaMalloc and cudaFree instead of the driver API. Running out is borne: a few blocks go. */
#include "cuda_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 24, THREADS = 16 };

static CUresult (*set_current)(CUcontext);
static CUresult (*take)(CUdeviceptr *, size_t); /* of the runtime: pointers for addresses, and codes of its own */
static CUresult (*give)(CUdeviceptr);
static CUresult (*info)(size_t *, size_t *);
static size_t (*trim)(int, size_t); /* NULL: nobody does */
static CUresult (*get_handle)(CUipcMemHandle *, CUdeviceptr); /* NULL: nobody does */
static CUcontext context[2];
static long rounds, devices;
static size_t largest;

static void *function(void *driver, const char *name)
{
    void *found = dlsym(driver, name);
    if (!found) {
        fprintf(stderr, "crowd: no %s\n", name);
        exit(3);
    }
    return found;
}

static void check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "crowd: %d\n", (int)result);
        exit(4);
    }
}

static void ask_for_handle(long round, CUdeviceptr address)
{
    CUipcMemHandle handle;
    if (get_handle && round > rounds / 2 && address)
        (void)get_handle(&handle, address);
}

static void *work(void *argument)
{
    CUdeviceptr block[BLOCKS] = {0};
    unsigned long seed = (unsigned long)(size_t)argument;
    unsigned random = (unsigned)seed * 2654435761u + 1;
    check(set_current(context[seed % (unsigned long)devices]));
    for (long i = 0; i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        CUdeviceptr *at = &block[(random >> 16) % BLOCKS];
        if (*at)
            check(give(*at));
        *at = 0;
        size_t bytes = (random >> 8) % 7 == 0 ? 1 + (random >> 12) % 60000 : 1 + ((size_t)random << 7) % largest;
        if (take(at, bytes) != CUDA_SUCCESS) {
            *at = 0;
            for (int b = 0; b < BLOCKS; b += 2) {
                if (block[b])
                    check(give(block[b]));
                block[b] = 0;
            }
        }
        if (seed == 0)
            ask_for_handle(i, *at);
        size_t free_bytes, total_bytes;
        if (i % 37 == 0)
            check(info(&free_bytes, &total_bytes));
        if (trim && i % 53 == 0)
            trim((int)(seed % (unsigned long)devices), (random >> 9) % 3 * largest);
    }
    for (int b = 0; b < BLOCKS; b++)
        if (block[b])
            check(give(block[b]));
    return NULL;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    bool trims = argc == 6 && strcmp(argv[5], "trim") == 0, asks = argc == 6 && strcmp(argv[5], "handle") == 0;
    bool runtime = argc == 6 && !trims && !asks;
    if ((argc != 5 && argc != 6) || !driver || (runtime && !dlopen(argv[5], RTLD_NOW | RTLD_GLOBAL))) {
        fputs("usage: crowd THREADS ROUNDS DEVICES LARGEST [trim | handle | RUNTIME]\n", stderr);
        return 2;
    }
    long threads = atol(argv[1]) < THREADS ? atol(argv[1]) : THREADS;
    rounds = atol(argv[2]);
    devices = atol(argv[3]);
    largest = (size_t)atol(argv[4]);
    CUresult (*init)(unsigned) = (CUresult(*)(unsigned))function(driver, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))function(driver, "cuDevicePrimaryCtxRetain");
    set_current = (CUresult(*)(CUcontext))function(driver, "cuCtxSetCurrent");
    take = (CUresult(*)(CUdeviceptr *, size_t))(
        runtime ? function(RTLD_DEFAULT, "cudaMalloc") : function(driver, "cuMemAlloc_v2"));
    give = (CUresult(*)(CUdeviceptr))(runtime ? function(RTLD_DEFAULT, "cudaFree") : function(driver, "cuMemFree_v2"));
    info = (CUresult(*)(size_t *, size_t *))function(driver, "cuMemGetInfo_v2");
    if (trims)
        trim = (size_t(*)(int, size_t))function(RTLD_DEFAULT, "segalloc_trim");
    if (asks)
        get_handle = (CUresult(*)(CUipcMemHandle *, CUdeviceptr))function(driver, "cuIpcGetMemHandle");
    check(init(0));
    for (int device = 0; device < devices; device++)
        check(retain(&context[device], device));
    pthread_t thread[THREADS];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, (void *)(size_t)i) != 0)
            return 5;
    for (long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
