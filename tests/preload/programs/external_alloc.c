/* Preloaded, on the simulator, where one call of a name runs out of memory once. Idle memory of ours makes room, the call
   is made again, and the program notices nothing. Usage: external_alloc NAME (with SEGALLOC_SIM=...,fail=NAME:1:2) */
#include <stdbool.h>
#include <string.h>

#include "cuda_proto.h"
#include "served.h"

enum { BYTES = 20 << 20 };

#define MUST(call) EXPECT((call) == CUDA_SUCCESS)

static void nothing(void *unused)
{
    (void)unused;
}

static CUfunction function_of(CUmodule *ret_module)
{
    CUfunction function = NULL;
    MUST(cuModuleLoadData(ret_module, "no code is read"));
    MUST(cuModuleGetFunction(&function, *ret_module, "any"));
    return function;
}

/* What the call of this name answers, made with all that it needs. */
static CUresult make(const char *name)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUcontext context;
    CUdeviceptr managed;
    CUdevice device = 0;
    if (strcmp(name, "cuModuleLoadData") == 0)
        return cuModuleLoadData(&module, "no code is read");
    if (strcmp(name, "cuModuleLoadDataEx") == 0)
        return cuModuleLoadDataEx(&module, "no code is read", 0, NULL, NULL);
    if (strcmp(name, "cuModuleGetFunction") == 0) {
        MUST(cuModuleLoadData(&module, "no code is read"));
        return cuModuleGetFunction(&function, module, "any");
    }
    if (strcmp(name, "cuLaunchKernel") == 0) {
        function = function_of(&module);
        return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    if (strcmp(name, "cuLaunchKernelEx") == 0) {
        const CUlaunchConfig config =
            {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
        function = function_of(&module);
        return cuLaunchKernelEx(&config, function, NULL, NULL);
    }
    if (strcmp(name, "cuLaunchHostFunc") == 0)
        return cuLaunchHostFunc(NULL, nothing, NULL);
    if (strcmp(name, "cuMemAllocManaged") == 0)
        return cuMemAllocManaged(&managed, 1000, CU_MEM_ATTACH_GLOBAL);
    if (strcmp(name, "cuDevicePrimaryCtxRetain") == 0)
        return cuDevicePrimaryCtxRetain(&context, device);
    EXPECT(!"a known name");
    return CUDA_SUCCESS;
}

int main(int count, char **argument)
{
    const char *name = count > 2 ? argument[1] : "";
    bool idle = count > 2 && strcmp(argument[2], "idle") == 0;
    CUcontext context;
    CUdeviceptr block;
    MUST(cuInit(0));
    MUST(cuCtxCreate_v4(&context, NULL, 0, 0));
    if (idle) {
        MUST(cuMemAlloc_v2(&block, BYTES));
        MUST(cuMemFree_v2(block));
        EXPECT(statistic(0, "reserved_bytes") >= BYTES);
    }
    EXPECT(make(name) == (idle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY));
    EXPECT(!idle || statistic(0, "reserved_bytes") == 0);
    return failures != 0;
}
