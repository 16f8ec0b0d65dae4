/* Preloaded, on the simulator: whether pages whose work is not complete are moved by a second address, or waited for. The
   same bytes are there in the end.

     aliases on | off …   (for each device, which are used in that order) */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BLOCKS = 8, BYTES = 8 << 20, WAITS_US = 100000 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool let_go;

static void hold(void *unused)
{
    (void)unused;
    for (int i = 0; !atomic_load(&let_go) && i < WAITS_US / 50; i++)
        usleep(50);
}

static void use(int ordinal, bool on)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    void *block[BLOCKS], *large;
    unsigned char last = 0;
    atomic_store(&let_go, false);
    MUST(cuDeviceGet(&device, ordinal));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = segalloc_malloc_on(BYTES, stream);
        EXPECT(block[i]);
    }
    MUST(cuLaunchHostFunc(stream, hold, NULL));
    for (int i = 0; i < BLOCKS; i++)
        MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)block[i], (unsigned char)(i + 1), BYTES, stream));
    for (int i = 0; i < BLOCKS; i += 2)
        segalloc_free(block[i]);
    large = segalloc_malloc_on(2 * BYTES, stream);
    EXPECT(large);
    EXPECT((statistic(ordinal, "aliased_pages") > 0) == on);
    EXPECT((statistic(ordinal, "host_waits") > 0) == !on);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)large, 9, 2 * BYTES, stream));
    atomic_store(&let_go, true);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(&last, (CUdeviceptr)(uintptr_t)large + 2 * BYTES - 1, 1));
    EXPECT(last == 9);
    for (int i = 1; i < BLOCKS; i += 2) {
        MUST(cuMemcpyDtoH_v2(&last, (CUdeviceptr)(uintptr_t)block[i] + BYTES - 1, 1));
        EXPECT(last == i + 1);
    }
}

int main(int argc, char **argv)
{
    MUST(cuInit(0));
    for (int i = 1; i < argc; i++)
        use(i - 1, strcmp(argv[i], "on") == 0);
    return failures != 0;
}
