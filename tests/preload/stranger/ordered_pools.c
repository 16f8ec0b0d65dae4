/* Stream-ordered memory as its guide shows it: the default pool with a release threshold, attributes, pools shared with
   a second device, and memory of the one kind freed by the calls of the other. */
#include "stranger.h"

static uint64_t attribute(cudaMemPool_t pool, enum cudaMemPoolAttr which)
{
    uint64_t value = 0;
    MUST(cudaMemPoolGetAttribute(pool, which, &value));
    return value;
}

static void vector_add(cudaStream_t stream, int rounds, size_t bytes)
{
    unsigned char *host = malloc(bytes), *back = malloc(bytes), *a, *b, *plain;
    unsigned wrong = 0;
    for (int i = 0; i < rounds; i++) {
        fill(host, bytes, (unsigned)i);
        MUST(cudaMallocAsync((void **)&a, bytes, stream));
        MUST(cudaMallocAsync((void **)&b, bytes, stream));
        MUST(cudaMalloc((void **)&plain, bytes));
        MUST(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, stream));
        MUST(cudaMemcpyAsync(plain, a, bytes, cudaMemcpyDeviceToDevice, stream));
        MUST(cudaFreeAsync(a, stream));
        MUST(cudaMemcpyAsync(b, plain, bytes, cudaMemcpyDeviceToDevice, stream));
        MUST(cudaFreeAsync(plain, stream));
        MUST(cudaMemcpyAsync(back, b, bytes, cudaMemcpyDeviceToHost, stream));
        MUST(cudaFreeAsync(b, stream));
        MUST(cudaStreamSynchronize(stream));
        wrong += memcmp(host, back, bytes) != 0;
    }
    printf("%u wrong\n", wrong);
    free(host);
    free(back);
}

static void across(cudaStream_t stream)
{
    int devices = 0, can = 0;
    cudaMemPool_t pool;
    cudaStream_t there;
    cudaEvent_t ready;
    unsigned char *block, *far, byte = 0;
    struct cudaMemAccessDesc access = {.location = {.type = cudaMemLocationTypeDevice, .id = 1},
        .flags = cudaMemAccessFlagsProtReadWrite};
    MUST(cudaGetDeviceCount(&devices));
    if (devices < 2 || cudaDeviceCanAccessPeer(&can, 1, 0) != cudaSuccess || !can)
        return;
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    SHOW(cudaMemPoolSetAccess(pool, &access, 1));
    MUST(cudaMallocAsync((void **)&block, MiB, stream));
    MUST(cudaMemsetAsync(block, 0x5a, MiB, stream));
    MUST(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
    MUST(cudaEventRecord(ready, stream));
    MUST(cudaSetDevice(1));
    MUST(cudaStreamCreateWithFlags(&there, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&far, MiB));
    MUST(cudaStreamWaitEvent(there, ready, 0));
    SHOW(cudaMemcpyAsync(far, block, MiB, cudaMemcpyDeviceToDevice, there));
    MUST(cudaMemcpyAsync(&byte, far + MiB - 1, 1, cudaMemcpyDeviceToHost, there));
    MUST(cudaStreamSynchronize(there));
    printf("byte %x\n", byte);
    SHOW(cudaFree(far));
    SHOW(cudaStreamDestroy(there));
    MUST(cudaSetDevice(0));
    SHOW(cudaFreeAsync(block, stream));
    SHOW(cudaEventDestroy(ready));
}

int main(void)
{
    cudaStream_t stream;
    cudaMemPool_t pool, current;
    unsigned char *p = NULL;
    uint64_t all = UINT64_MAX, none = 0;
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
    MUST(cudaDeviceGetMemPool(&current, 0));
    FACT(pool == current);
    FACT(attribute(pool, cudaMemPoolAttrReleaseThreshold) == 0);
    vector_add(stream, 20, 3 * MiB);
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    vector_add(stream, 20, 3 * MiB);
    FACT(attribute(pool, cudaMemPoolAttrUsedMemCurrent) == 0);
    FACT(attribute(pool, cudaMemPoolAttrUsedMemHigh) >= 6 * MiB);
    MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &none));
    FACT(attribute(pool, cudaMemPoolAttrUsedMemHigh) == 0);
    SHOW(cudaMemPoolTrimTo(pool, 0));
    FACT(attribute(pool, cudaMemPoolAttrReservedMemCurrent) == 0);
    SHOW(cudaMallocAsync((void **)&p, 1000, stream));
    SHOW(cudaFree(p)); /* waits for nothing */
    SHOW(cudaFreeAsync(p, stream));
    SHOW(cudaGetLastError());
    SHOW(cudaMalloc((void **)&p, 1000));
    SHOW(cudaFreeAsync(p, stream));
    SHOW(cudaFreeAsync(NULL, stream));
    SHOW(cudaGetLastError());
    across(stream);
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaDeviceSynchronize());
    return 0;
}
