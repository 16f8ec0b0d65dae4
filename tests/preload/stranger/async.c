/* Memory in stream order, its pools, and the two ways of freeing crossed. */
#include "stranger.h"

int main(void)
{
    cudaStream_t stream;
    cudaMemPool_t pool, own;
    unsigned char *p, *q, byte = 0;
    int supported = 0;
    MUST(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    FACT(supported == 1);
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMallocAsync((void **)&p, 3 * MiB, stream));
    MUST(cudaMemsetAsync(p, 0x31, 3 * MiB, stream));
    MUST(cudaMallocAsync((void **)&q, 3 * MiB, stream));
    MUST(cudaMemcpyAsync(q, p, 3 * MiB, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaFreeAsync(p, stream));
    MUST(cudaMemcpyAsync(&byte, q + 2 * MiB, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    FACT(byte == 0x31);
    SHOW(cudaFreeAsync(q, stream));

    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    uint64_t threshold = UINT64_MAX, used = 1;
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    threshold = 0;
    MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    FACT(threshold == UINT64_MAX);
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    printf("used %llu\n", (unsigned long long)used);
    SHOW(cudaMemPoolTrimTo(pool, 0));

    struct cudaMemPoolProps props = {0};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    MUST(cudaMemPoolCreate(&own, &props));
    MUST(cudaMallocFromPoolAsync((void **)&p, 1000, own, stream));
    MUST(cudaStreamSynchronize(stream));
    SHOW(cudaFree(p));
    SHOW(cudaMemPoolDestroy(own));

    /* of the pool, freed at once; at once, freed in the stream */
    MUST(cudaMallocAsync((void **)&p, MiB, stream));
    MUST(cudaStreamSynchronize(stream));
    SHOW(cudaFree(p));
    MUST(cudaMalloc((void **)&q, MiB));
    MUST(cudaMemsetAsync(q, 1, MiB, stream));
    SHOW(cudaFreeAsync(q, stream));
    MUST(cudaStreamSynchronize(stream));
    SHOW(cudaFree(q));
    SHOW(cudaFreeAsync(NULL, stream));
    SHOW(cudaMallocAsync((void **)&p, (size_t)1 << 45, stream));
    SHOW(cudaGetLastError());
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaDeviceSynchronize());
    return 0;
}
