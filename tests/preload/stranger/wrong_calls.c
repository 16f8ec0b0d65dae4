/* Calls that are wrong for plain memory, and right calls at wrong times: each says so, and memory stays as it was. */
#include "stranger_driver.h"

enum { BYTES = 4 << 20 };

static unsigned char *block;
static cudaStream_t stream;

static unsigned char last_byte(void)
{
    unsigned char byte = 0;
    MUST(cudaMemcpy(&byte, block + BYTES - 1, 1, cudaMemcpyDeviceToHost));
    return byte;
}

/* Calls for memory that a program maps itself, registers or shares with the host. */
static void for_other_memory(void)
{
    CUdeviceptr page = (CUdeviceptr)(uintptr_t)block & ~(CUdeviceptr)(2 * MiB - 1);
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemAccessDesc none = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE},
        read = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    unsigned flags;
    void *seen;
    CUgraph graph;
    CUgraphNode node;
    TELL(cuMemSetAccess(page, 2 * MiB, &none, 1));
    TELL(cuMemSetAccess(page, 4 * MiB, &read, 1));
    TELL(cuMemUnmap(page, 2 * MiB));
    TELL(cuMemUnmap((CUdeviceptr)(uintptr_t)block, BYTES));
    TELL(cuMemAddressFree(page, 2 * MiB));
    SHOW(cudaFreeHost(block));
    SHOW(cudaHostUnregister(block));
    SHOW(cudaHostGetDevicePointer(&seen, block, 0));
    SHOW(cudaHostGetFlags(&flags, block));
    SHOW(cudaStreamAttachMemAsync(stream, block, 0, cudaMemAttachSingle));
    NEED(cuGraphCreate(&graph, 0));
    TELL(cuGraphAddMemFreeNode(&node, graph, NULL, 0, (CUdeviceptr)(uintptr_t)block));
    NEED(cuGraphDestroy(graph));
    MUST(cudaMemset(block, 3, BYTES));
    FACT(last_byte() == 3);
    (void)cudaGetLastError();
}

static void CUDART_CB calls(void *number)
{
    size_t a, b;
    void *p;
    switch ((int)(intptr_t)number) {
    case 0:
        SHOW(cudaMalloc(&p, 1000));
        break;
    case 1:
        SHOW(cudaFree(block));
        break;
    case 2:
        SHOW(cudaFreeAsync(block, stream));
        break;
    case 3:
        SHOW(cudaMemGetInfo(&a, &b));
        break;
    case 4:
        SHOW(cudaMallocPitch(&p, &a, 100, 100));
        break;
    case 5:
        TELL(cuMemFree((CUdeviceptr)(uintptr_t)block));
        break;
    default:
        SHOW(cudaDeviceReset());
    }
}

static void CUDART_CB calls_too(cudaStream_t of, cudaError_t status, void *number)
{
    (void)of;
    (void)status;
    calls(number);
}

/* Functions of the host may not call the runtime. */
static void in_functions_of_the_host(void)
{
    for (intptr_t i = 0; i < 14; i++) {
        MUST(cudaMemsetAsync(block, 5, BYTES, stream));
        if (i < 7)
            MUST(cudaLaunchHostFunc(stream, calls, (void *)i));
        else
            MUST(cudaStreamAddCallback(stream, calls_too, (void *)(i - 7), 0));
        MUST(cudaMemsetAsync(block, (int)i, BYTES, stream));
        MUST(cudaStreamSynchronize(stream));
        FACT(last_byte() == i);
        (void)cudaGetLastError();
    }
}

/* What is no block's beginning is nobody's to free, and the capture goes on. */
static void in_captures(void)
{
    for (int mode = cudaStreamCaptureModeGlobal; mode <= cudaStreamCaptureModeRelaxed; mode++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        MUST(cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode));
        MUST(cudaMemsetAsync(block, 7 + mode, BYTES, stream));
        SHOW(cudaFree(block + 1));
        SHOW(cudaFree(block + BYTES - 512));
        SHOW(cudaFree(&graph));
        SHOW(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaGraphExecDestroy(exec));
        MUST(cudaGraphDestroy(graph));
        MUST(cudaStreamSynchronize(stream));
        FACT(last_byte() == 7 + mode);
        (void)cudaGetLastError();
    }
}

/* A stream that is no more can't be what a free is ordered after. */
static void in_streams_that_are_gone(void)
{
    cudaStream_t gone;
    unsigned char *other;
    MUST(cudaMalloc((void **)&other, BYTES));
    MUST(cudaStreamCreate(&gone));
    MUST(cudaStreamDestroy(gone));
    SHOW(cudaFreeAsync(other, gone));
    SHOW(cudaMemset(other, 1, BYTES));
    MUST(cudaDeviceSynchronize()); /* `stream` doesn't come after the legacy one by itself */
    SHOW(cudaFreeAsync(other, stream));
    SHOW(cudaFreeAsync(other, stream));
    SHOW(cudaFree(other));
    SHOW(cudaGetLastError());
}

int main(void)
{
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&block, BYTES));
    for_other_memory();
    in_functions_of_the_host();
    in_captures();
    in_streams_that_are_gone();
    SHOW(cudaFree(block));
    return 0;
}
