/* For programs that run under LD_PRELOAD: memory that goes to another process, which is this program again with the
   argument "import". It sees the bytes "here" and writes "there" at their end, in the order of an event of both. */
#ifndef GIFT_H
#define GIFT_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { GIFT_BYTES = 32 << 20 };

/* What goes to the other process. */
struct gift {
    CUipcMemHandle memory;
    CUipcEventHandle event;
};

static inline void start(void)
{
    CUcontext context = NULL;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

/* The other process; preloaded too. */
static inline int import(void)
{
    struct gift gift;
    CUdeviceptr address = 0, own = 0;
    CUevent event = NULL;
    char text[8] = "";
    start();
    EXPECT(read(0, &gift, sizeof gift) == sizeof gift);
    EXPECT(cuIpcOpenEventHandle(&event, gift.event) == CUDA_SUCCESS);
    EXPECT(cuStreamWaitEvent(NULL, event, 0) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc_v2(&own, 4096) == CUDA_SUCCESS);
    EXPECT(cuIpcOpenMemHandle_v2(&address, gift.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS);
    EXPECT(cuMemcpyDtoD_v2(own, address, 8) == CUDA_SUCCESS && cuMemcpyDtoH_v2(text, own, 8) == CUDA_SUCCESS);
    EXPECT(strcmp(text, "here") == 0);
    EXPECT(cuMemcpyHtoDAsync_v2(address + GIFT_BYTES - 8, "there", 6, NULL) == CUDA_SUCCESS);
    EXPECT(cuEventRecord(event, NULL) == CUDA_SUCCESS && cuEventSynchronize(event) == CUDA_SUCCESS);
    EXPECT(cuEventDestroy_v2(event) == CUDA_SUCCESS);
    EXPECT(cuMemFree_v2(address) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcCloseMemHandle(address) == CUDA_SUCCESS && cuMemFree_v2(own) == CUDA_SUCCESS);
    return failures != 0;
}

/* Whether the handle of [address, address + GIFT_BYTES) can be had and opened elsewhere. */
static inline void give_to_another_process(CUdeviceptr address)
{
    int ends[2], result = -1;
    char text[8] = "";
    CUevent event;
    struct gift gift;
    EXPECT(cuMemcpyHtoD_v2(address, "here", 5) == CUDA_SUCCESS);
    EXPECT(cuIpcGetMemHandle(&gift.memory, address) == CUDA_SUCCESS);
    EXPECT(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    EXPECT(cuEventRecord(event, NULL) == CUDA_SUCCESS && cuIpcGetEventHandle(&gift.event, event) == CUDA_SUCCESS);
    EXPECT(pipe(ends) == 0 && write(ends[1], &gift, sizeof gift) == sizeof gift);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], 0);
        execl("/proc/self/exe", "ipc", "import", NULL);
        _exit(2);
    }
    EXPECT(waitpid(child, &result, 0) == child && result == 0);
    EXPECT(cuStreamWaitEvent(NULL, event, 0) == CUDA_SUCCESS && cuEventDestroy_v2(event) == CUDA_SUCCESS);
    EXPECT(cuMemcpyDtoH_v2(text, address + GIFT_BYTES - 8, 6) == CUDA_SUCCESS && strcmp(text, "there") == 0);
    close(ends[0]);
    close(ends[1]);
}

#endif
