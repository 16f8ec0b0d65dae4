/* Preloaded, on the simulator: that memory is given to other processes shows only once some was allocated. What was
   there before stays what it is, and frees; what comes after is such as a legacy handle can give away.
   Usage: ipc_later refused|never|none|dlopen LIBRARY|caller LIBRARY */
#include "gift.h"

enum { SMALL = 3000 };

int cudaMalloc(void **ret, size_t bytes);

typedef CUresult alloc_fn(CUdeviceptr *ret, size_t bytes);

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr address = 0;
    EXPECT(cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS);
    return address;
}

static CUresult try_handle(CUdeviceptr address)
{
    CUipcMemHandle handle;
    return cuIpcGetMemHandle(&handle, address);
}

/* By the runtime too, where the short way is. */
static CUdeviceptr allocate_by_runtime(size_t bytes)
{
    void *address = NULL;
    EXPECT(cudaMalloc(&address, bytes) == 0);
    return (CUdeviceptr)(uintptr_t)address;
}

/* All that is allocated from here on can be given away. */
static void expect_shared(void)
{
    CUdeviceptr block[3] = {allocate_by_runtime(SMALL), allocate(SMALL), allocate(GIFT_BYTES)};
    for (int i = 0; i < 3; i++)
        EXPECT(try_handle(block[i]) == CUDA_SUCCESS);
    give_to_another_process(block[2]);
    for (int i = 0; i < 3; i++)
        EXPECT(cuMemFree_v2(block[i]) == CUDA_SUCCESS);
}

static void *load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW);
    EXPECT(handle != NULL);
    return handle;
}

/* What a module allocates is the driver's, and nobody else's is. */
static void call_from(const char *path)
{
    alloc_fn *function;
    CUdeviceptr address = 0, after;
    void *handle = load(path), *symbol = handle ? dlsym(handle, "nccl_alloc") : NULL;
    memcpy(&function, &symbol, sizeof function);
    for (int i = 1; symbol && i <= 3; i++) {
        EXPECT(function(&address, GIFT_BYTES) == CUDA_SUCCESS && statistic(0, "passed_on") == (uint64_t)i);
        if (i == 1)
            give_to_another_process(address);
        EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
    }
    after = allocate(SMALL);
    EXPECT(statistic(0, "passed_on") == 3 && try_handle(after) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2(after) == CUDA_SUCCESS);
}

int main(int count, char **argument)
{
    const char *how = count > 1 ? argument[1] : "";
    char option[16] = "";
    if (strcmp(how, "import") == 0)
        return import();
    start();
    CUdeviceptr before[3] = {allocate(SMALL), allocate_by_runtime(SMALL), allocate_by_runtime(GIFT_BYTES)};
    EXPECT(segalloc_option("ipc", option, sizeof option) > 0);
    if (strcmp(how, "none") == 0) { /* the driver has no such handles */
        EXPECT(try_handle(before[1]) == CUDA_ERROR_NOT_SUPPORTED);
        EXPECT(cuMemFree_v2(before[0]) == CUDA_SUCCESS && statistic(0, "allocations") == 2);
        before[0] = allocate(SMALL);
        EXPECT(statistic(0, "segments") == 2 && statistic(0, "allocations") == 3); /* regions, as before */
        return failures != 0;
    }
    if (strcmp(how, "caller") == 0)
        call_from(argument[2]);
    else if (strcmp(how, "dlopen") == 0)
        load(argument[2]);
    else
        EXPECT(try_handle(before[1]) == CUDA_ERROR_INVALID_VALUE);
    if (strcmp(how, "refused") == 0 || strcmp(how, "dlopen") == 0)
        expect_shared();
    if (strcmp(how, "never") == 0)
        EXPECT(try_handle(allocate(SMALL)) == CUDA_ERROR_INVALID_VALUE);
    if (strcmp(how, "dlopen") != 0) /* or it would say a second line */
        EXPECT(try_handle(before[1]) == CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++)
        EXPECT(cuMemFree_v2(before[i]) == CUDA_SUCCESS);
    EXPECT(statistic(0, "allocated_bytes") == (strcmp(how, "never") == 0 ? 3072 : 0));
    EXPECT(statistic(0, "double_frees") == 0);
    return failures != 0;
}
