/* Preloaded together with next_interposer, before or after it: RTLD_NEXT means the next after the caller. */
#include <stdlib.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

int main(void)
{
    void *address;
    CUdeviceptr device_address;
    void *symbol = dlsym(RTLD_DEFAULT, "next_of");
    void *(*next_of)(const char *);
    int (*calls)(void);
    memcpy(&next_of, &symbol, sizeof next_of);
    symbol = dlsym(RTLD_DEFAULT, "interposer_calls");
    memcpy(&calls, &symbol, sizeof calls);
    EXPECT(cudaMalloc(&address, 100) == cudaSuccess && cudaFree(address) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == 1);

    /* A function that the interposer has itself, and everybody else: its next is not its own. */
    void *own = dlsym(RTLD_DEFAULT, "interposer_calls");
    EXPECT(own && !next_of("interposer_calls"));
    EXPECT(next_of("printf"));

    EXPECT(cuMemAlloc_v2(&device_address, 100) == CUDA_SUCCESS && cuMemFree_v2(device_address) == CUDA_SUCCESS);
    EXPECT(statistic(0, "allocs") == 2);
    if (getenv("INTERPOSER_FIRST"))
        EXPECT(calls() == 1);
    return failures != 0;
}
