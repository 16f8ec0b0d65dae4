/* Preloaded, on a simulated machine of 300 mappings: the program takes what is left of them itself, beside memory of ours
   half of which is idle. What is allocated then is served all the same, in larger pages; and where none is left at all
   what could be had without us can be had. */
#include <stdbool.h>

#include "cuda_proto.h"
#include "served.h"

enum { BLOCKS = 40, BYTES = 10 << 20, PAGE = 2 << 20, OWN = 101 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

/* All mappings that are left. */
static int take_the_rest(CUdeviceptr address)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int i = 0; i < OWN; i++) {
        CUmemGenericAllocationHandle page;
        CUdeviceptr at = address + (CUdeviceptr)i * PAGE;
        MUST(cuMemCreate(&page, PAGE, &prop, 0));
        MUST(cuMemMap(at, PAGE, 0, page, 0));
        MUST(cuMemRelease(page));
        if (cuMemSetAccess(at, PAGE, &access, 1) != CUDA_SUCCESS)
            return i;
    }
    return OWN;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr block[BLOCKS], own, large[8];
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAddressReserve(&own, (size_t)OWN * PAGE, 0, 0, 0));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemAlloc_v2(&block[i], BYTES));
    for (int i = 0; i < BLOCKS; i += 2)
        MUST(cuMemFree_v2(block[i]));
    EXPECT(take_the_rest(own) == 100);
    for (int i = 0; i < 8; i++) {
        MUST(cuMemAlloc_v2(&large[i], 3 * BYTES));
        MUST(cuMemsetD8_v2(large[i], i, 3 * BYTES));
    }
    EXPECT(statistic(0, "passed_on") == 0 && statistic(0, "ooms") == 0);
    for (int i = 1; i < BLOCKS; i += 2)
        MUST(cuMemFree_v2(block[i]));
    for (int i = 0; i < 8; i++)
        MUST(cuMemFree_v2(large[i]));
    return failures != 0;
}
