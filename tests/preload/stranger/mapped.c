/* Host memory that the device sees: registered, mapped, portable. What is asked about it, and copies between it and
   plain memory. */
#include "stranger.h"

enum { BYTES = 1 << 20 };

int main(void)
{
    unsigned char *own = aligned_alloc(4096, BYTES), *pinned, *plain, *seen = NULL;
    struct cudaPointerAttributes about;
    unsigned flags = 0;
    MUST(cudaSetDeviceFlags(cudaDeviceMapHost));
    fill(own, BYTES, 1);
    SHOW(cudaHostRegister(own, BYTES, cudaHostRegisterMapped | cudaHostRegisterPortable));
    SHOW(cudaHostRegister(own, BYTES, cudaHostRegisterDefault));
    MUST(cudaHostGetDevicePointer((void **)&seen, own, 0));
    FACT(seen != NULL);
    MUST(cudaPointerGetAttributes(&about, own));
    FACT(about.type == cudaMemoryTypeHost && about.hostPointer == own && about.devicePointer == seen);
    MUST(cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocMapped | cudaHostAllocWriteCombined));
    MUST(cudaHostGetFlags(&flags, pinned));
    FACT(flags & cudaHostAllocMapped);
    unsigned wrong = 0;
    for (int i = 0; i < 20; i++) {
        fill(own, BYTES, (unsigned)i);
        MUST(cudaMalloc((void **)&plain, BYTES));
        MUST(cudaMemcpyAsync(plain, seen, BYTES, cudaMemcpyDefault, 0));
        MUST(cudaMemcpyAsync(pinned, plain, BYTES, cudaMemcpyDefault, 0));
        MUST(cudaFree(plain));
        MUST(cudaDeviceSynchronize());
        wrong += memcmp(own, pinned, BYTES) != 0;
    }
    printf("%u wrong\n", wrong);
    SHOW(cudaFree(pinned)); /* not that call's */
    SHOW(cudaFreeHost(pinned));
    SHOW(cudaFreeHost(pinned));
    SHOW(cudaFreeHost(NULL));
    SHOW(cudaFreeHost(own));
    SHOW(cudaHostUnregister(own));
    SHOW(cudaHostUnregister(own));
    MUST(cudaMalloc((void **)&plain, BYTES));
    SHOW(cudaHostUnregister(plain));
    SHOW(cudaFreeHost(plain));
    SHOW(cudaHostGetFlags(&flags, plain));
    SHOW(cudaFree(plain));
    MUST(cudaPointerGetAttributes(&about, own));
    FACT(about.type == cudaMemoryTypeUnregistered);
    SHOW(cudaGetLastError());
    free(own);
    return 0;
}
