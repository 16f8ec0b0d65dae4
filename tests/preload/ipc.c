/* Preloaded, on the simulator: with UCX's CUDA part in the process, or on request, memory is such as legacy IPC can
   give away, every block of it, and another process sees the same bytes, in the order of an event of both. Otherwise it
   can't, and a line says what to do. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "served.h"

enum { BYTES = 32 << 20, OTHERS = 12 };

/* What goes to the other process. */
struct gift {
    CUipcMemHandle memory;
    CUipcEventHandle event;
};

int uct_cuda_present(void);

static void start(void)
{
    CUcontext context = NULL;
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

/* The other process; preloaded too. */
static int import(void)
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
    EXPECT(cuMemcpyHtoDAsync_v2(address + BYTES - 8, "there", 6, NULL) == CUDA_SUCCESS);
    EXPECT(cuEventRecord(event, NULL) == CUDA_SUCCESS && cuEventSynchronize(event) == CUDA_SUCCESS);
    EXPECT(cuEventDestroy_v2(event) == CUDA_SUCCESS);
    EXPECT(cuMemFree_v2(address) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcCloseMemHandle(address) == CUDA_SUCCESS && cuMemFree_v2(own) == CUDA_SUCCESS);
    return failures != 0;
}

static void give_to_another_process(const CUipcMemHandle *handle)
{
    int ends[2], result = -1;
    CUevent event;
    struct gift gift = {.memory = *handle};
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
    close(ends[0]);
    close(ends[1]);
}

/* Blocks of all sizes, also such as would lie side by side elsewhere. */
static void give_many(bool can)
{
    CUdeviceptr address[OTHERS];
    CUipcMemHandle handle;
    for (int i = 0; i < OTHERS; i++) {
        EXPECT(cuMemAlloc_v2(&address[i], (size_t)1 << (9 + i % 6 * 3)) == CUDA_SUCCESS);
        EXPECT(cuIpcGetMemHandle(&handle, address[i]) == (can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    }
    for (int i = 0; i < OTHERS; i++)
        EXPECT(cuMemFree_v2(address[i]) == CUDA_SUCCESS);
}

/* What is in force is settled by the first allocation: another thread may ask meanwhile. */
static void *ask(void *unused)
{
    char text[16] = "";
    for (int i = 0; i < 1000; i++)
        EXPECT(segalloc_option("ipc", text, sizeof text) > 0);
    return unused;
}

int main(int count, char **argument)
{
    CUdeviceptr address = 0;
    CUipcMemHandle handle;
    char text[8] = "";
    int legacy = 0;
    EXPECT(uct_cuda_present());
    if (count == 2 && strcmp(argument[1], "import") == 0)
        return import();
    int can = count < 2 || strcmp(argument[1], "never") != 0;
    start();
    pthread_t asking;
    EXPECT(pthread_create(&asking, NULL, ask, NULL) == 0);
    EXPECT(cuMemAlloc_v2(&address, BYTES) == CUDA_SUCCESS);
    EXPECT(pthread_join(asking, NULL) == 0);
    EXPECT(statistic(0, "allocs") == 1);
    EXPECT(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == CUDA_SUCCESS);
    EXPECT(legacy == can);
    EXPECT(cuMemcpyHtoD_v2(address, "here", 5) == CUDA_SUCCESS);
    EXPECT(cuIpcGetMemHandle(&handle, address) == (can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
    if (can) {
        give_to_another_process(&handle);
        EXPECT(cuMemcpyDtoH_v2(text, address + BYTES - 8, 6) == CUDA_SUCCESS && strcmp(text, "there") == 0);
    }
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
    give_many(can);
    return failures != 0;
}
