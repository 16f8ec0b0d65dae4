/* Preloaded, on the simulator: with UCX's CUDA part in the process, or on request, memory is such as legacy IPC can give
   away. The simulator has no legacy IPC, and says so in its own way. */
#include "cuda_proto.h"
#include "served.h"

int uct_cuda_present(void);

int main(void)
{
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    CUipcMemHandle handle;
    int legacy = 0;
    EXPECT(uct_cuda_present());
    EXPECT(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS && cuMemAlloc_v2(&address, 32 << 20) == CUDA_SUCCESS);
    EXPECT(statistic(0, "allocs") == 1);
    EXPECT(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) == CUDA_SUCCESS);
    EXPECT(legacy == 1);
    EXPECT(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
    return failures != 0;
}
