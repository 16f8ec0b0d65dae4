/* Has the library wait as often as is asked for: HOW TIMES. "strict": for frees, under free_sync:strict. Else for
   allocations, each of which needs the memory that the work before it still uses: "later", which was freed under
   free_sync:event, "streams", which is another stream's. On a card with room for one block, whose work does not run
   before somebody waits. */
#include "cuda_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 40 << 20 };

static CUresult (*init)(unsigned);
static CUresult (*retain)(CUcontext *, CUdevice);
static CUresult (*set_current)(CUcontext);
static CUresult (*create_stream)(CUstream *, unsigned);
static CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream);
static CUresult (*allocate)(CUdeviceptr *, size_t);
static CUresult (*give_back)(CUdeviceptr);
static void *(*take)(size_t, void *);
static int (*give)(void *);

static void find(void *function, void *from, const char *name)
{
    *(void **)function = dlsym(from, name);
    if (!*(void **)function) {
        fprintf(stderr, "waits: no %s\n", name);
        exit(3);
    }
}

static void check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "waits: %d\n", (int)result);
        exit(4);
    }
}

static void on_two_streams(long times)
{
    CUstream stream[2];
    for (int i = 0; i < 2; i++)
        check(create_stream(&stream[i], 1 /* non-blocking */));
    for (long i = 0; i <= times; i++) {
        void *block = take(BYTES, stream[i % 2]);
        check(block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
        check(fill((CUdeviceptr)(size_t)block, 1, BYTES, stream[i % 2]));
        check((CUresult)give(block));
    }
}

static void on_the_default_stream(long times)
{
    for (long i = 0; i < times; i++) {
        CUdeviceptr block;
        check(allocate(&block, BYTES));
        check(fill(block, 1, BYTES, NULL));
        check(give_back(block));
    }
}

int main(int count, char **argument)
{
    CUcontext context;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (count < 3 || !driver)
        return 2;
    find(&init, driver, "cuInit");
    find(&retain, driver, "cuDevicePrimaryCtxRetain");
    find(&set_current, driver, "cuCtxSetCurrent");
    find(&create_stream, driver, "cuStreamCreate");
    find(&fill, driver, "cuMemsetD8Async");
    find(&allocate, driver, "cuMemAlloc_v2");
    find(&give_back, driver, "cuMemFree_v2");
    find(&take, RTLD_DEFAULT, "segalloc_malloc_on");
    find(&give, RTLD_DEFAULT, "segalloc_free");
    check(init(0));
    check(retain(&context, 0));
    check(set_current(context));
    long times = strtol(argument[2], NULL, 10);
    if (strcmp(argument[1], "streams") == 0)
        on_two_streams(times);
    else
        on_the_default_stream(times + (strcmp(argument[1], "later") == 0));
    return 0;
}
