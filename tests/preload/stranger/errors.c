/* What is refused, with which error, and what stays in the error slot. */
#include "stranger.h"

int main(void)
{
    unsigned char *p = NULL, *q = NULL, local[64];
    SHOW(cudaFree(NULL));
    SHOW(cudaMalloc((void **)&p, 0));
    FACT(p == NULL);
    SHOW(cudaMalloc(NULL, 100));
    SHOW(cudaPeekAtLastError());
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());

    SHOW(cudaMalloc((void **)&p, (size_t)-1));
    SHOW(cudaMalloc((void **)&p, (size_t)-512));
    SHOW(cudaMalloc((void **)&p, (size_t)1 << 63));
    SHOW(cudaMalloc((void **)&p, (size_t)1 << 47));
    SHOW(cudaGetLastError());

    MUST(cudaMalloc((void **)&p, 10000));
    MUST(cudaMalloc((void **)&q, 10000));
    SHOW(cudaFree(p + 1));
    SHOW(cudaFree(p + 512));
    SHOW(cudaFree(p + 9999));
    SHOW(cudaFree(p));
    SHOW(cudaFree(p));
    SHOW(cudaFree(local));
    SHOW(cudaFree((void *)0x123456000));
    SHOW(cudaFree((void *)-1));
    SHOW(cudaFreeHost(q));
    SHOW(cudaFree(q));
    SHOW(cudaFree(q));
    SHOW(cudaGetLastError());

    MUST(cudaMallocHost((void **)&p, 4096));
    SHOW(cudaFree(p));
    SHOW(cudaFreeHost(p));
    SHOW(cudaHostUnregister(local));
    SHOW(cudaSetDevice(1000));
    SHOW(cudaSetDevice(-1));
    SHOW(cudaStreamDestroy((cudaStream_t)0));
    SHOW(cudaGetLastError());
    SHOW(cudaGetLastError());

    printf("%s\n", cudaGetErrorString(cudaErrorMemoryAllocation));
    printf("%s\n", cudaGetErrorString(cudaErrorInvalidValue));
    printf("%s\n", cudaGetErrorString((cudaError_t)123456));
    MUST(cudaMalloc((void **)&p, 100));
    SHOW(cudaMemset(p, 1, 100));
    SHOW(cudaFree(p));
    return 0;
}
