/* Copies and fills, in every direction, at once and in streams. */
#include "stranger.h"

#define BYTES ((size_t)3 << 20)

int main(void)
{
    unsigned char *host, *back, *a, *b;
    cudaStream_t stream;
    MUST(cudaMallocHost((void **)&host, BYTES));
    MUST(cudaHostAlloc((void **)&back, BYTES, cudaHostAllocPortable));
    MUST(cudaMalloc((void **)&a, BYTES));
    MUST(cudaMalloc((void **)&b, BYTES));
    MUST(cudaStreamCreate(&stream));
    fill(host, BYTES, 5);

    MUST(cudaMemcpyAsync(a, host, BYTES, cudaMemcpyHostToDevice, stream));
    MUST(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
    MUST(cudaMemsetAsync(b + 1000, 0xab, 500, stream));
    MUST(cudaMemcpyAsync(back, b, BYTES, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    FACT(memcmp(host, back, 1000) == 0 && memcmp(host + 1500, back + 1500, BYTES - 1500) == 0);
    FACT(back[1000] == 0xab && back[1499] == 0xab);
    printf("checksum %08x\n", checksum(back, BYTES));

    MUST(cudaMemset(a, 0, BYTES));
    MUST(cudaMemcpy(a + 17, host, 4321, cudaMemcpyDefault));
    MUST(cudaMemcpy(back, a, BYTES, cudaMemcpyDefault));
    FACT(back[16] == 0 && memcmp(back + 17, host, 4321) == 0 && back[17 + 4321] == 0);
    MUST(cudaMemcpy(back, host, BYTES, cudaMemcpyHostToHost));
    FACT(memcmp(back, host, BYTES) == 0);
    MUST(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
    MUST(cudaMemset(NULL, 0, 0));

    SHOW(cudaMemcpy(a, host, 16, (enum cudaMemcpyKind)42));
    SHOW(cudaMemcpy(a, host, (size_t)1 << 40, cudaMemcpyHostToDevice));
    SHOW(cudaMemset(a, 1, (size_t)1 << 40));
    SHOW(cudaMemcpy(NULL, host, 16, cudaMemcpyHostToDevice));
    SHOW(cudaGetLastError());
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaFree(a));
    SHOW(cudaFree(b));
    SHOW(cudaFreeHost(host));
    SHOW(cudaFreeHost(back));
    SHOW(cudaFreeHost(back));
    return 0;
}
