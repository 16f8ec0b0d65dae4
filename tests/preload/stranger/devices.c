/* Each device there is, and copies between them. */
#include "stranger.h"

int main(void)
{
    int count = 0, device = -1;
    MUST(cudaGetDeviceCount(&count));
    printf("%d devices\n", count);
    unsigned char *on[8] = {0}, byte = 0;
    for (int i = 0; i < count && i < 8; i++) {
        size_t free_bytes, total;
        struct cudaPointerAttributes attributes;
        MUST(cudaSetDevice(i));
        MUST(cudaGetDevice(&device));
        FACT(device == i);
        MUST(cudaMemGetInfo(&free_bytes, &total));
        size_t taken = total - free_bytes; /* by a real driver's context */
        FACT(times(1, 0) ? taken == 0 : free_bytes <= total);
        MUST(cudaMalloc((void **)&on[i], 5 * MiB));
        MUST(cudaMemset(on[i], 10 + i, 5 * MiB));
        MUST(cudaPointerGetAttributes(&attributes, on[i]));
        printf("device %d\n", attributes.device);
    }
    MUST(cudaSetDevice(0));
    for (int i = 1; i < count && i < 8; i++) {
        int can = -1;
        MUST(cudaDeviceCanAccessPeer(&can, 0, i));
        printf("can access %d\n", can);
        SHOW(cudaMemcpyPeer(on[0], 0, on[i], i, 5 * MiB));
        MUST(cudaMemcpy(&byte, on[0] + 4 * MiB, 1, cudaMemcpyDeviceToHost));
        printf("byte %d\n", byte);
        if (can) {
            SHOW(cudaDeviceEnablePeerAccess(i, 0));
            SHOW(cudaDeviceEnablePeerAccess(i, 0));
            SHOW(cudaGetLastError());
            MUST(cudaMemset(on[0], 1, 5 * MiB));
            SHOW(cudaMemcpy(on[i], on[0], 5 * MiB, cudaMemcpyDefault));
            MUST(cudaMemcpy(&byte, on[i], 1, cudaMemcpyDeviceToHost));
            printf("byte %d\n", byte);
            SHOW(cudaDeviceDisablePeerAccess(i));
        }
    }
    /* freed without the device being current */
    for (int i = 0; i < count && i < 8; i++)
        SHOW(cudaFree(on[i]));
    SHOW(cudaGetLastError());
    return 0;
}
