/* cudaMemGetInfo before, while and after memory is held. */
#include "stranger.h"

int main(void)
{
    size_t free_bytes, total, now, same;
    struct cudaDeviceProp prop;
    void *p, *q;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    MUST(cudaGetDeviceProperties(&prop, 0));
    FACT(free_bytes <= total);
    FACT(prop.totalGlobalMem == total);
    MUST(cudaMalloc(&p, 40 * MiB));
    MUST(cudaMemGetInfo(&now, &same));
    FACT(same == total);
    FACT(free_bytes - now >= 40 * MiB);
    FACT(free_bytes - now <= 60 * MiB);
    MUST(cudaMalloc(&q, 40 * MiB));
    MUST(cudaMemGetInfo(&now, NULL));
    FACT(free_bytes - now >= 80 * MiB);
    MUST(cudaFree(p));
    MUST(cudaMemGetInfo(&now, NULL));
    FACT(free_bytes - now >= 40 * MiB);
    FACT(free_bytes - now <= 60 * MiB);
    MUST(cudaFree(q));
    MUST(cudaMemGetInfo(&now, &total));
    FACT(within_a_page(now, free_bytes));
    SHOW(cudaMemGetInfo(NULL, NULL));
    SHOW(cudaGetLastError());
    return 0;
}
