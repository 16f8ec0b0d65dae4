/* What the tests call of the CUDA runtime. Source: CUDA Runtime API, 13.0. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stddef.h>

enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaStreamNonBlocking = 1,
};

typedef struct CUstream_st *cudaStream_t;

struct pointer_attributes {
    int type, device;
    void *device_pointer, *host_pointer;
    long reserved[8];
};

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaDeviceReset(void);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, cudaStream_t);
int cudaMallocAsync(void **, size_t, cudaStream_t);
int cudaFreeAsync(void *, cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
int cudaSetDevice(int);
int cudaGetDevice(int *);
int cudaPointerGetAttributes(struct pointer_attributes *, const void *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);

#endif
