/* Preloaded, on the simulator: a program with 60 % of a device idle with us that takes 60 % of it as managed memory. No
   page of that has to go to the host's memory, or stay there, as natively. Made first and fetched later, for this device
   or another one; or only used. */
#include <stdbool.h>

#include "cuda_proto.h"
#include "extra.h"
#include "served.h"

enum { PIECES = 30 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static size_t share; /* of a device, 60 % */

static void fill_and_free(void)
{
    CUdeviceptr block[PIECES];
    for (int i = 0; i < PIECES; i++)
        MUST(cuMemAlloc_v2(&block[i], share / PIECES));
    for (int i = 0; i < PIECES; i++)
        MUST(cuMemFree_v2(block[i]));
}

static void expect_all_on(int device, const char *how)
{
    struct segalloc_sim_managed state = {0};
    segalloc_sim_managed_fn ask;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "segalloc_sim_managed");
    EXPECT(ask && ask(device, &state) == 0);
    printf("%s: %llu MiB on the device, %llu pages evicted, %llu kept out\n", how,
        (unsigned long long)state.resident_bytes >> 20, (unsigned long long)state.evicted_pages,
        (unsigned long long)state.kept_out_pages);
    EXPECT(state.resident_bytes == share && state.evicted_pages == 0 && state.kept_out_pages == 0);
}

static CUdeviceptr make(void)
{
    CUdeviceptr managed;
    MUST(cuMemAllocManaged(&managed, share, CU_MEM_ATTACH_GLOBAL));
    return managed;
}

int main(void)
{
    CUcontext context[2];
    size_t total;
    MUST(cuInit(0));
    for (int i = 0; i < 2; i++)
        MUST(cuDevicePrimaryCtxRetain(&context[i], i));
    MUST(cuCtxSetCurrent(context[0]));
    MUST(cuMemGetInfo_v2(NULL, &total));
    share = total / 10 * 6 / (PIECES * (2 << 20)) * (PIECES * (2 << 20));
    fill_and_free();
    CUdeviceptr managed = make();
    MUST(cuMemsetD8_v2(managed, 1, share));
    MUST(cuCtxSynchronize());
    expect_all_on(0, "used");
    MUST(cuMemFree_v2(managed));
    managed = make();
    fill_and_free();
    MUST(cuMemPrefetchAsync(managed, share, 0, NULL));
    expect_all_on(0, "fetched");
    MUST(cuMemPrefetchAsync(managed, share, CU_DEVICE_CPU, NULL));
    MUST(cuCtxSetCurrent(context[1]));
    fill_and_free();
    MUST(cuCtxSetCurrent(context[0]));
    MUST(cuMemPrefetchAsync_v2(managed, share, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 1}, 0, NULL));
    expect_all_on(1, "fetched by another device's context");
    MUST(cuMemFree_v2(managed));
    return failures != 0;
}
