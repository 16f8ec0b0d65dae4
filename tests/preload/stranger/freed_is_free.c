/* Once the program has waited for a device, what was freed before in the order of its streams is free. */
#include "stranger.h"

enum { ROUNDS = 40 };

static size_t held(void)
{
    size_t left, total;
    MUST(cudaMemGetInfo(&left, &total));
    return total - left;
}

int main(void)
{
    cudaStream_t stream;
    unsigned wrong = 0;
    size_t before = held();
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < ROUNDS; i++) {
        cudaStream_t in[] = {stream, cudaStreamLegacy, cudaStreamPerThread, NULL};
        unsigned char *block[4];
        for (int k = 0; k < 4; k++) {
            MUST(cudaMalloc((void **)&block[k], (size_t)(k + 1) * 700000));
            MUST(cudaMemsetAsync(block[k], k, (size_t)(k + 1) * 700000, in[k]));
            MUST(cudaFreeAsync(block[k], in[k]));
        }
        MUST(cudaDeviceSynchronize());
        wrong += !within_a_page(held(), before);
    }
    printf("%u wrong\n", wrong);
    return 0;
}
