/* Contexts made by hand beside the runtime's: memory of one used and freed from another, and what a destroyed one takes
   with it. */
#include "stranger_driver.h"

static CUcontext make(void)
{
    CUcontext context;
#if CUDA_VERSION >= 13000
    NEED(cuCtxCreate(&context, NULL, 0, 0));
#else
    NEED(cuCtxCreate(&context, 0, 0));
#endif
    return context;
}

int main(void)
{
    CUcontext first, second, primary, current;
    CUdeviceptr a, b, c, gone[8];
    CUstream stream;
    unsigned char byte = 0;
    size_t before, after, total;
    NEED(cuInit(0));
    NEED(cuDevicePrimaryCtxRetain(&primary, 0));
    NEED(cuCtxSetCurrent(primary));
    NEED(cuMemGetInfo(&before, &total));
    NEED(cuMemAlloc(&a, 3 << 20));
    first = make();
    NEED(cuMemAlloc(&b, 3 << 20));
    NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    NEED(cuMemsetD8Async(b, 0x42, 3 << 20, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemcpyDtoD(a, b, 3 << 20)); /* another context's */
    NEED(cuMemcpyDtoH(&byte, a + 99, 1));
    FACT(byte == 0x42);
    NEED(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    FACT(current == primary);
    NEED(cuPointerGetAttribute(&current, CU_POINTER_ATTRIBUTE_CONTEXT, b));
    FACT(current == first);
    second = make();
    NEED(cuMemAlloc(&c, 1 << 20));
    TELL(cuMemFree(b)); /* of the first */
    TELL(cuMemFree(b));
    NEED(cuCtxSetCurrent(first));
    for (int i = 0; i < 8; i++) {
        NEED(cuMemAlloc(&gone[i], (size_t)(i + 1) << 18));
        NEED(cuMemsetD8Async(gone[i], (unsigned char)i, (size_t)(i + 1) << 18, stream));
    }
    NEED(cuMemFree(gone[3]));
    TELL(cuCtxDestroy(first)); /* with work queued and memory alive */
    NEED(cuCtxSetCurrent(second));
    TELL(cuMemFree(gone[0]));
    NEED(cuMemsetD8(c, 7, 1 << 20));
    NEED(cuMemcpyDtoH(&byte, c, 1));
    FACT(byte == 7);
    TELL(cuCtxDestroy(second));
    NEED(cuCtxSetCurrent(primary));
    TELL(cuMemFree(c));
    NEED(cuMemcpyDtoH(&byte, a, 1));
    FACT(byte == 0x42);
    TELL(cuMemFree(a));
    NEED(cuMemGetInfo(&after, &total));
    FACT(within_a_page(before, after));
    TELL(cuDevicePrimaryCtxRelease(0));
    return 0;
}
