/* Preloaded, on the simulator with its hazard checker on: a program that declares nothing. The library says whose the
   bytes are, so work of two blocks' users on the same bytes, in no order, is found although both lie in one page of the
   cache.

     declared legal | illegal */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { BYTES = 64 << 10 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static uint64_t hazards(void)
{
    uint64_t (*count)(void);
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_sim_hazards");
    memcpy(&count, &symbol, sizeof count);
    return symbol ? count() : 0;
}

static CUdeviceptr number(void *address)
{
    return (CUdeviceptr)(uintptr_t)address;
}

/* A block of one stream is used on another as well, which its free is told of, or not. */
static void use_elsewhere(bool tells)
{
    CUstream own, other;
    uint64_t before = hazards();
    MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    void *first = segalloc_malloc_on(BYTES, own);
    MUST(cuMemsetD8Async(number(first), 1, BYTES, other));
    if (tells)
        MUST((CUresult)segalloc_record_stream(first, other));
    MUST((CUresult)segalloc_free(first));
    void *second = segalloc_malloc_on(BYTES, own);
    MUST(cuMemsetD8Async(number(second), 2, BYTES, own));
    EXPECT(hazards() == before + !tells);
    MUST((CUresult)segalloc_free(second));
    MUST(cuCtxSynchronize());
}

/* Work that is given memory after its free. */
static void use_after_the_free(void)
{
    void *block;
    uint64_t before = hazards();
    EXPECT(cudaMalloc(&block, BYTES) == 0);
    MUST(cuMemsetD8_v2(number(block), 1, BYTES));
    EXPECT(cudaFree(block) == 0);
    EXPECT(hazards() == before);
    MUST(cuMemsetD8_v2(number(block), 1, BYTES));
    EXPECT(hazards() == before + 1);
}

/* A free that is refused ends nothing. */
static void free_the_middle(void)
{
    char *block;
    uint64_t before = hazards();
    EXPECT(cudaMalloc((void **)&block, BYTES) == 0);
    EXPECT(cudaFree(block + BYTES / 2) != 0);
    MUST(cuMemsetD8_v2(number(block), 1, BYTES));
    EXPECT(hazards() == before);
    EXPECT(cudaFree(block) == 0);
}

/* By the runtime, which takes the short way elsewhere. */
static void use_in_order(void)
{
    uint64_t before = hazards();
    for (int i = 0; i < 32; i++) {
        void *block[4];
        for (int k = 0; k < 4; k++) {
            EXPECT(cudaMalloc(&block[k], BYTES << k) == 0);
            MUST(cuMemsetD8Async(number(block[k]), 1, BYTES << k, NULL));
        }
        for (int k = 0; k < 4; k++)
            EXPECT(cudaFree(block[k]) == 0);
    }
    EXPECT(hazards() == before);
}

int main(int count, char **argument)
{
    CUcontext context;
    bool legal = count == 2 && strcmp(argument[1], "legal") == 0;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    use_in_order();
    free_the_middle();
    use_elsewhere(legal);
    if (!legal)
        use_after_the_free();
    EXPECT(statistic(0, "allocs") > 100);
    return failures != 0;
}
