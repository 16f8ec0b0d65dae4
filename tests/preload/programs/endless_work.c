/* Preloaded, on the simulator: work that never ends by itself, on a device or in a context that may be using what this
   one frees. No free waits for it, and no allocation does for long: memory grows, then there is a bounded wait, then
   the driver is asked, and the report says what holds the memory. Run with a small wait_limit.

     endless_work device | context [never]     never: wait_limit is 0 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BYTES = 16 << 20, BLOCKS = 10, MOST = 32, REPORT = 8192 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static atomic_bool let_go;

static void persistent(void *unused)
{
    (void)unused;
    while (!atomic_load(&let_go))
        usleep(100);
}

static int allocate(CUdeviceptr *block, int most)
{
    int got = 0;
    while (got < most && cuMemAlloc_v2(&block[got], BYTES) == CUDA_SUCCESS)
        MUST(cuMemsetD8_v2(block[got++], 1, BYTES));
    return got;
}

static void release(CUdeviceptr *block, int count)
{
    for (int i = 0; i < count; i++)
        MUST(cuMemFree_v2(block[i]));
}

/* What the library wrote to stderr while `block` was filled, and something larger was asked for then: only that shows that
   the program does without the last. */
static int allocate_heard(CUdeviceptr *block, int most, char *ret_report)
{
    char name[] = "/tmp/held_memory.XXXXXX";
    int before = dup(2), file = mkstemp(name);
    EXPECT(before >= 0 && file >= 0 && unlink(name) == 0 && dup2(file, 2) == 2);
    CUdeviceptr larger;
    int got = allocate(block, most);
    EXPECT(cuMemAlloc_v2(&larger, 4 * BYTES) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(dup2(before, 2) == 2);
    ssize_t length = pread(file, ret_report, REPORT - 1, 0);
    ret_report[length > 0 ? length : 0] = '\0';
    close(before);
    close(file);
    return got;
}

int main(int count, char **argument)
{
    bool device = count > 1 && strcmp(argument[1], "device") == 0, waits = count < 3;
    CUcontext own, other, popped;
    CUstream far;
    CUdeviceptr block[MOST];
    char report[REPORT];
    size_t before, after, total;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&own, 0));
    MUST(cuCtxSetCurrent(own));
    if (device) {
        MUST(cuDevicePrimaryCtxRetain(&other, 1));
        MUST(cuCtxSetCurrent(other));
        MUST(cuCtxEnablePeerAccess(own, 0));
    } else {
        MUST(cuCtxCreate_v2(&other, 0, 0));
    }
    MUST(cuStreamCreate(&far, CU_STREAM_NON_BLOCKING));
    MUST(cuCtxPopCurrent_v2(&popped));
    MUST(cuCtxSetCurrent(own));
    MUST(cuMemGetInfo_v2(&before, &total));
    EXPECT(allocate(block, BLOCKS) == BLOCKS);
    MUST(cuLaunchHostFunc(far, persistent, NULL));
    release(block, BLOCKS);
    EXPECT(statistic(0, "pending_bytes") == (uint64_t)BLOCKS * BYTES);
    MUST(cuMemGetInfo_v2(&after, &total));
    bool strict = statistic(0, "strict_frees") > 0;
    if (waits) /* as natively, since an allocation waits for it */
        EXPECT(!strict || after == before);
    else
        EXPECT(after <= before - (size_t)BLOCKS * BYTES);
    int got = allocate_heard(block, MOST, report);
    EXPECT(got > 0 && got <= MOST - BLOCKS); /* by growing */
    EXPECT((statistic(0, "waits_given_up") > 0 || !waits) && statistic(0, "ooms") > 0);
    EXPECT(strstr(report, "segalloc: out of memory") && strstr(report, "freed but still in use by queued work") &&
           strstr(report, "wait_limit"));
    EXPECT(!atomic_load(&let_go));
    atomic_store(&let_go, true);
    MUST(cuCtxSetCurrent(other));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(own));
    MUST(cuCtxSynchronize()); /* its own work has not been waited for where frees don't */
    for (; statistic(0, "pending_bytes") > 0; usleep(100))
        MUST(cuMemGetInfo_v2(&after, &total)); /* asks how far work has come */
    int again = allocate(block + got, MOST - got); /* all of it is had again */
    EXPECT(again >= BLOCKS - 2);
    return failures != 0;
}
