/* Preloaded, on the simulator. With UCX's CUDA part in the process, or on request, legacy IPC can give memory away, every
   block of it. Another process sees the same bytes then, in the order of an event of both. Otherwise it can't, and a line
   says what to do. */
#include <pthread.h>

#include "gift.h"

enum { OTHERS = 12 };

int uct_cuda_present(void);

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
    int legacy = 0;
    EXPECT(uct_cuda_present());
    if (count == 2 && strcmp(argument[1], "import") == 0)
        return import();
    int can = count < 2 || strcmp(argument[1], "never") != 0;
    start();
    pthread_t asking;
    EXPECT(pthread_create(&asking, NULL, ask, NULL) == 0);
    EXPECT(cuMemAlloc_v2(&address, GIFT_BYTES) == CUDA_SUCCESS);
    EXPECT(pthread_join(asking, NULL) == 0);
    EXPECT(statistic(0, "allocs") == 1);
    EXPECT(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == CUDA_SUCCESS);
    EXPECT(legacy == can);
    if (can)
        give_to_another_process(address);
    else
        EXPECT(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
    give_many(can);
    return failures != 0;
}
