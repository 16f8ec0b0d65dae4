/* What must not be freed, and what is asked about addresses that are no longer anybody's. */
#include "stranger.h"

static void about(const char *name, const void *address)
{
    struct cudaPointerAttributes attributes = {0};
    cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    printf("%s: %s, type %d\n", name, cudaGetErrorName(error), (int)attributes.type);
    (void)cudaGetLastError();
}

static void frees(const char *name, void *address)
{
    printf("%s: %s\n", name, cudaGetErrorName(cudaFree(address)));
    printf("then %s\n", cudaGetErrorName(cudaGetLastError()));
}

int main(void)
{
    static const size_t sizes[] = {1, 511, 513, 70000, MiB, 9 * MiB, 40 * MiB};
    unsigned char *block, *other, *zero = (unsigned char *)8, on_stack[16], *on_heap = malloc(100), byte = 0;
    cudaStream_t stream;
    cudaEvent_t event;
    SHOW(cudaMalloc(NULL, 100));
    SHOW(cudaMalloc((void **)&zero, 0));
    frees("zero bytes", zero == (unsigned char *)8 ? NULL : zero);
    frees("NULL", NULL);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        MUST(cudaMalloc((void **)&block, sizes[i]));
        MUST(cudaMalloc((void **)&other, sizes[i]));
        MUST(cudaMemset(other, 7, sizes[i]));
        about("live", block);
        about("inside", block + sizes[i] - 1);
        if (sizes[i] > 512) {
            frees("a byte in", block + 1);
            frees("a unit in", block + 512);
        }
        frees("live", block);
        frees("again", block);
        about("freed", block);
        SHOW(cudaMemcpy(&byte, other, 1, cudaMemcpyDeviceToHost));
        printf("byte %d\n", byte);
        frees("other", other);
        frees("other again", other);
    }
    frees("heap", on_heap);
    frees("stack", on_stack);
    frees("never", (void *)(uintptr_t)0x7000000000);
    about("heap", on_heap);
    about("NULL", NULL);
    SHOW(cudaMemset(NULL, 0, 10));
    MUST(cudaStreamCreate(&stream));
    MUST(cudaEventCreate(&event));
    MUST(cudaMalloc((void **)&block, MiB));
    SHOW(cudaFreeAsync(block, stream));
    SHOW(cudaFreeAsync(block, stream));
    SHOW(cudaFree(block));
    SHOW(cudaGetLastError());
    MUST(cudaMalloc((void **)&block, MiB)); /* goes on as if nothing had been */
    SHOW(cudaMemset(block, 3, MiB));
    SHOW(cudaFree(block));
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaEventDestroy(event));
    free(on_heap);
    return 0;
}
