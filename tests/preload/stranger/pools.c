/* Pools of the program's own beside plain memory: frees crossed both ways, order between streams, trimming. */
#include "stranger.h"

int main(void)
{
    cudaStream_t a, b;
    cudaEvent_t event;
    cudaMemPool_t pool;
    struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    unsigned char *p, *q, byte = 0;
    uint64_t used = 99, reserved = 99, keep = UINT64_MAX;
    unsigned wrong = 0;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaMemPoolCreate(&pool, &props));
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    for (int i = 0; i < 60; i++) {
        MUST(cudaMallocFromPoolAsync((void **)&p, 700000, pool, a));
        MUST(cudaMalloc((void **)&q, 700000));
        MUST(cudaMemsetAsync(p, i, 700000, a));
        MUST(cudaEventRecord(event, a));
        MUST(cudaStreamWaitEvent(b, event, 0));
        MUST(cudaMemcpyAsync(q, p, 700000, cudaMemcpyDeviceToDevice, b));
        MUST(cudaFreeAsync(p, b)); /* on another stream than it was allocated on, after an event */
        MUST(cudaMemcpyAsync(&byte, q + 699999, 1, cudaMemcpyDeviceToHost, b));
        if (i % 3 == 0)
            MUST(cudaFreeAsync(q, b)); /* plain memory by the other interface */
        MUST(cudaStreamSynchronize(b));
        wrong += byte != i;
        if (i % 3)
            MUST(cudaFree(q));
    }
    printf("%u wrong\n", wrong);
    MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    FACT(used == 0);
    MUST(cudaMemPoolTrimTo(pool, 0));
    MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    FACT(reserved == 0);
    MUST(cudaMallocFromPoolAsync((void **)&p, 5000, pool, a));
    MUST(cudaStreamSynchronize(a));
    SHOW(cudaFree(p)); /* memory of a pool by cudaFree */
    SHOW(cudaFree(p));
    SHOW(cudaGetLastError());
    SHOW(cudaMemPoolDestroy(pool));
    SHOW(cudaEventDestroy(event));
    SHOW(cudaStreamDestroy(a));
    SHOW(cudaStreamDestroy(b));
    return 0;
}
