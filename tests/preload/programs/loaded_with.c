/* Preloaded, on the simulator, with libraries loaded whose presence decides how memory is served. Usage: loaded_with
   HOW [LIBRARY…]: whether a block can be given to another process by a legacy handle ("shared") or not ("own"), or
   nothing is served at all ("passed"). */
#include <dlfcn.h>
#include <string.h>

#include "cuda_proto.h"
#include "served.h"

int main(int count, char **argument)
{
    const char *how = count > 1 ? argument[1] : "";
    CUcontext context;
    CUdeviceptr block;
    CUipcMemHandle handle;
    for (int i = 2; i < count; i++)
        EXPECT(dlopen(argument[i], RTLD_NOW));
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    EXPECT(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    EXPECT(cuMemAlloc_v2(&block, 1000) == CUDA_SUCCESS);
    EXPECT((statistic(0, "allocs") == 0) == (strcmp(how, "passed") == 0));
    void *function = NULL;
    EXPECT(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, NULL) == CUDA_SUCCESS);
    EXPECT(is_ours(function) == (strcmp(how, "passed") != 0));
    EXPECT((cuIpcGetMemHandle(&handle, block) == CUDA_SUCCESS) == (strcmp(how, "own") != 0));
    EXPECT(cuMemFree_v2(block) == CUDA_SUCCESS);
    return failures != 0;
}
