/* Preloaded, on the simulator: whether pages whose work is not complete are moved by a second address, or waited for. The
   same bytes are there in the end.

     aliases on | off …   (for each device, which are used in that order) */
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BLOCKS = 8, BYTES = 8 << 20, WAITS_US = 100000, TRIES = 100 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool let_go;

static void hold(void *unused)
{
    (void)unused;
    for (int i = 0; !atomic_load(&let_go) && i < WAITS_US / 50; i++)
        usleep(50);
}

/* A device is tried by a thread of the library's. Where that comes late, on a busy machine, a later try counts. */
static bool use(int ordinal, bool on)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    void *block[BLOCKS], *large;
    unsigned char last = 0;
    double waits = statistic(ordinal, "host_waits");
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
    bool aliased = statistic(ordinal, "aliased_pages") > 0;
    EXPECT(aliased ? on : statistic(ordinal, "host_waits") > waits);
    EXPECT(!aliased || statistic(ordinal, "host_waits") == waits);
    MUST(cuMemsetD8Async((CUdeviceptr)(uintptr_t)large, 9, 2 * BYTES, stream));
    atomic_store(&let_go, true);
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(&last, (CUdeviceptr)(uintptr_t)large + 2 * BYTES - 1, 1));
    EXPECT(last == 9);
    for (int i = 1; i < BLOCKS; i += 2) {
        MUST(cuMemcpyDtoH_v2(&last, (CUdeviceptr)(uintptr_t)block[i] + BYTES - 1, 1));
        EXPECT(last == i + 1);
        segalloc_free(block[i]);
    }
    segalloc_free(large);
    MUST(cuStreamDestroy_v2(stream));
    return aliased == on;
}

int main(int argc, char **argv)
{
    MUST(cuInit(0));
    for (int i = 1; i < argc; i++) {
        bool on = strcmp(argv[i], "on") == 0;
        int tries = 0;
        while (!use(i - 1, on) && tries < TRIES && !failures)
            tries++;
        EXPECT(tries < TRIES);
    }
    return failures != 0;
}
