/* Allocates blocks of sizes in MiB and registers each with a network card; prints a line for each: "registered" or "refused".
   Usage: registers IBVERBS [LIBRARY…] -- MIB…
   The libraries are loaded before the first allocation, as a program does that is linked with them. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_proto.h"

enum { MIB_BYTES = 1 << 20, BLOCKS = 64 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dlerror());
    return 1;
}

int main(int argc, char **argv)
{
    void *(*registers)(void *, void *, size_t, int);
    CUdeviceptr block[BLOCKS];
    CUcontext context;
    int at = 1, count = 0;
    void *verbs = argc > 1 ? dlopen(argv[at++], RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *symbol = verbs ? dlsym(verbs, "ibv_reg_mr") : NULL;
    memcpy(&registers, &symbol, sizeof symbol);
    if (!symbol)
        return fail("ibv_reg_mr");
    for (; at < argc && strcmp(argv[at], "--") != 0; at++)
        if (!dlopen(argv[at], RTLD_NOW | RTLD_GLOBAL))
            return fail(argv[at]);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return fail("no device");
    for (at++; at < argc && count < BLOCKS; at++) {
        size_t bytes = (size_t)atol(argv[at]) * MIB_BYTES;
        if (cuMemAlloc_v2(&block[count], bytes) != CUDA_SUCCESS) {
            puts("no memory");
            continue;
        }
        puts(registers(NULL, (void *)(uintptr_t)block[count], bytes, 7) ? "registered" : "refused");
        count++;
    }
    while (count > 0)
        if (cuMemFree_v2(block[--count]) != CUDA_SUCCESS)
            return fail("a free was refused");
    return 0;
}
