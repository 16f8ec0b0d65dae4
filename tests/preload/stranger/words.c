/* Two streams that hand blocks over by words of memory: waited for in a stream, in a graph, and in a captured one. */
#include "stranger_driver.h"

enum { BYTES = 2 << 20, ROUNDS = 12 };

/* What was copied last, once the stream is there. */
static unsigned char byte_of(CUdeviceptr from, CUstream stream)
{
    unsigned char byte = 0;
    NEED(cuStreamSynchronize(stream));
    NEED(cuMemcpyDtoH(&byte, from + BYTES - 1, 1));
    return byte;
}

static CUgraphExec graph_that_waits(CUstreamBatchMemOpParams *wait)
{
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_BATCH_MEM_OP_NODE_PARAMS params = {.count = 1, .paramArray = wait};
    NEED(cuCtxGetCurrent(&params.ctx));
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphDestroy(graph));
    return exec;
}

static CUgraphExec captured_wait(CUstream stream, CUdeviceptr word)
{
    CUgraph graph;
    CUgraphExec exec;
    NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    NEED(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    NEED(cuStreamEndCapture(stream, &graph));
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphDestroy(graph));
    return exec;
}

int main(void)
{
    CUcontext context;
    CUdevice device;
    CUdeviceptr word, result, block;
    CUstream from, to;
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuStreamCreate(&from, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&to, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc(&word, 64));
    NEED(cuMemAlloc(&result, BYTES));
    CUstreamBatchMemOpParams wait = {0}, back = {0};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = word;
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    back.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    back.writeValue.address = word;
    back.writeValue.value = 0;
    CUgraphExec made = graph_that_waits(&wait), captured = captured_wait(to, word);
    NEED(cuMemsetD8(word, 0, 64));
    NEED(cuCtxSynchronize()); /* these streams do not wait for the legacy one */
    for (int i = 0; i < ROUNDS; i++) {
        NEED(cuMemAlloc(&block, BYTES));
        if (i % 3 == 0)
            NEED(cuGraphLaunch(made, to));
        else if (i % 3 == 1)
            NEED(cuGraphLaunch(captured, to));
        else
            NEED(cuStreamBatchMemOp(to, 1, &wait, 0));
        NEED(cuMemcpyDtoDAsync(result, block, BYTES, to));
        NEED(cuStreamBatchMemOp(to, 1, &back, 0));
        NEED(cuMemsetD8Async(block, (unsigned char)(i + 1), BYTES, from));
        NEED(cuStreamWriteValue32(from, word, 1, 0));
        NEED(cuMemFree(block)); /* comes after both */
        printf("%d ", byte_of(result, to));
    }
    printf("\n");
    TELL(cuStreamBatchMemOp(to, 1, &wait, 1));
    TELL(cuGraphExecDestroy(made));
    TELL(cuGraphExecDestroy(captured));
    NEED(cuMemFree(word));
    NEED(cuMemFree(result));
    TELL(cuDevicePrimaryCtxRelease(device));
    return 0;
}
