/* Where free memory is no multiple of a page, as much is free before the first allocation as after the last free. All of
   that can be had. The program holds the rest of the card by the driver's own pages. */
#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

int main(void)
{
    static const size_t lefts[] = {(4102ull << 20), (166ull << 20), (2ull << 20), (30ull << 30) + (6 << 20)};
    for (size_t i = 0; i < sizeof lefts / sizeof *lefts; i++) {
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUmemGenericAllocationHandle rest;
        size_t before = 0, held, after, total;
        void *block;
        EXPECT(cudaFree(NULL) == cudaSuccess && cudaMemGetInfo(&before, &total) == cudaSuccess);
        size_t others = (before - lefts[i]) / (2 << 20) * (2 << 20);
        EXPECT(cuMemCreate(&rest, others, &prop, 0) == CUDA_SUCCESS);
        EXPECT(cudaMemGetInfo(&before, &total) == cudaSuccess);
        EXPECT(before <= lefts[i] + (8 << 20));
        if (before > 1 << 20) {
            EXPECT(cudaMalloc(&block, 1 << 20) == cudaSuccess);
            EXPECT(cudaMemGetInfo(&held, &total) == cudaSuccess && held < before);
            EXPECT(cudaFree(block) == cudaSuccess);
        }
        EXPECT(cudaMemGetInfo(&after, &total) == cudaSuccess);
        EXPECT(after == before);
        if (before) {
            EXPECT(cudaMalloc(&block, before / (2 << 20) * (2 << 20)) == cudaSuccess);
            EXPECT(cudaFree(block) == cudaSuccess);
        }
        EXPECT(cudaDeviceReset() == cudaSuccess);
        (void)cuMemRelease(rest);
    }
    return failures != 0;
}
