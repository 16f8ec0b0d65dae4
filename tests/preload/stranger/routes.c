/* One program that comes to the driver's allocation in each way there is. */
#include "stranger.h"

#include <dlfcn.h>

#include <cuda.h>

#undef cuGetProcAddress

typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*free_fn)(CUdeviceptr);
typedef CUresult (*ask_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void use(const char *route, void *alloc_address, void *free_address)
{
    alloc_fn allocate;
    free_fn release;
    CUdeviceptr p = 0;
    unsigned char byte = 0;
    memcpy(&allocate, &alloc_address, sizeof allocate);
    memcpy(&release, &free_address, sizeof release);
    printf("%s: %s", route, allocate && release ? "found" : "missing");
    if (allocate && release) {
        printf(", %d", (int)allocate(&p, 7 * MiB));
        MUST(cudaMemset((void *)(uintptr_t)p, 0x77, 7 * MiB));
        MUST(cudaMemcpy(&byte, (void *)(uintptr_t)(p + 6 * MiB), 1, cudaMemcpyDeviceToHost));
        printf(", %s", byte == 0x77 ? "right" : "wrong");
        printf(", %d", (int)release(p));
        printf(", %d", (int)release(p));
    }
    printf("\n");
}

int main(void)
{
    void *allocate = NULL, *release = NULL;
    MUST(cudaFree(NULL));
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    use("dlsym", dlsym(handle, "cuMemAlloc_v2"), dlsym(handle, "cuMemFree_v2"));

    void *address = dlsym(handle, "cuGetProcAddress_v2");
    ask_fn ask;
    CUdriverProcAddressQueryResult status;
    memcpy(&ask, &address, sizeof ask);
    printf("%d\n", (int)ask("cuMemAlloc", &allocate, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    printf("%d\n", (int)ask("cuMemFree", &release, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    use("cuGetProcAddress_v2", allocate, release);

    allocate = release = NULL;
    enum cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion("cuMemAlloc", &allocate, 12000, cudaEnableDefault, &result));
    MUST(cudaGetDriverEntryPointByVersion("cuMemFree", &release, 12000, cudaEnablePerThreadDefaultStream, &result));
    use("cudaGetDriverEntryPointByVersion", allocate, release);

    allocate = release = NULL;
    void *again = NULL;
    MUST(cudaGetDriverEntryPointByVersion("cuGetProcAddress", &again, 12000, cudaEnableDefault, &result));
    memcpy(&ask, &again, sizeof ask);
    printf("%d\n", (int)ask("cuMemAlloc", &allocate, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
    printf("%d\n", (int)ask("cuMemFree", &release, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
    use("cuGetProcAddress of itself", allocate, release);
    printf("%d", (int)ask("cuNoSuchThing", &allocate, 12000, 0, &status));
    printf(" %d\n", (int)status);

    void *p = NULL;
    SHOW(cudaMalloc(&p, 7 * MiB));
    SHOW(cudaFree(p));
    SHOW(cudaGetLastError());
    return 0;
}
