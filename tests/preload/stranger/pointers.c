/* What the runtime and the driver say of pointers. */
#include "stranger.h"

#include <cuda.h>

static void say(const char *name, const void *pointer, const void *base)
{
    struct cudaPointerAttributes a;
    cudaError_t error = cudaPointerGetAttributes(&a, pointer);
    printf("%s: %s", name, cudaGetErrorName(error));
    if (error == cudaSuccess)
        printf(", type %d, device %d, device pointer %s, host pointer %s", a.type, a.device,
               a.devicePointer == pointer ? "same" : a.devicePointer ? "other" : "none",
               a.hostPointer == pointer ? "same" : a.hostPointer ? "other" : "none");
    printf("%s\n", base == pointer ? "" : ", inside");
}

typedef CUresult (*range_fn)(CUdeviceptr *, size_t *, CUdeviceptr);
typedef CUresult (*attribute_fn)(void *, CUpointer_attribute, CUdeviceptr);

int main(void)
{
    unsigned char *p, *q, *host, *managed;
    MUST(cudaMalloc((void **)&p, 3000000));
    MUST(cudaMalloc((void **)&q, 3000));
    MUST(cudaMallocHost((void **)&host, 8192));
    MUST(cudaMallocManaged((void **)&managed, 8192, cudaMemAttachGlobal));
    say("device", p, p);
    say("device", p + 2999999, p);
    say("device", q + 1, q);
    say("host", host, host);
    say("managed", managed, managed);

    range_fn range;
    attribute_fn attribute;
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult status;
    MUST(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &status));
    memcpy(&range, &function, sizeof range);
    MUST(cudaGetDriverEntryPointByVersion("cuPointerGetAttribute", &function, 12000, cudaEnableDefault, &status));
    memcpy(&attribute, &function, sizeof attribute);
    CUdeviceptr base = 0;
    size_t size = 0;
    printf("range: %d\n", range(&base, &size, (CUdeviceptr)(uintptr_t)p + 1234567));
    FACT(base == (CUdeviceptr)(uintptr_t)p);
    FACT(size == 3000000);
    printf("range: %d\n", range(NULL, &size, (CUdeviceptr)(uintptr_t)q));
    FACT(size >= 3000);
    CUmemorytype type = 0;
    CUcontext context = NULL;
    unsigned long long first = 0, second = 0;
    CUdeviceptr start = 0;
    printf("type: %d\n", attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)p));
    FACT(type == CU_MEMORYTYPE_DEVICE);
    printf("context: %d\n", attribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)(uintptr_t)p));
    FACT(context != NULL);
    printf("start: %d\n", attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (CUdeviceptr)(uintptr_t)p + 99));
    FACT(start == (CUdeviceptr)(uintptr_t)p);
    printf("id: %d\n", attribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)p));
    MUST(cudaFree(p));
    MUST(cudaMalloc((void **)&p, 3000000));
    printf("id: %d\n", attribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)(uintptr_t)p));
    FACT(first != second);

    SHOW(cudaFree(p));
    SHOW(cudaFree(q));
    SHOW(cudaFreeHost(host));
    SHOW(cudaFree(managed));
    int local;
    say("stack", &local, &local);
    SHOW(cudaGetLastError());
    return 0;
}
