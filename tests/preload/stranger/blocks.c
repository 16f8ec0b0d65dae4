/* Many blocks of many sizes, alive at once and freed out of order: each keeps its own bytes. */
#include "stranger.h"

enum { BLOCKS = 200, ROUNDS = 4000 };

static struct {
    unsigned char *at;
    size_t bytes;
    unsigned seed;
} blocks[BLOCKS];

static unsigned char host[300000], back[300000];

static size_t size_for(unsigned random)
{
    static const size_t sizes[] = {1, 100, 512, 513, 4096, 65536, 131072, 262144, 300000};
    return random % 3 ? sizes[random / 3 % 9] : 1 + random / 3 % sizeof host;
}

int main(void)
{
    unsigned wrong = 0, unaligned = 0, taken = 0, random = 1;
    size_t live = 0, peak = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        random = mix(random + round);
        unsigned i = random % BLOCKS;
        if (!blocks[i].at) {
            blocks[i].bytes = size_for(random / BLOCKS);
            blocks[i].seed = round;
            MUST(cudaMalloc((void **)&blocks[i].at, blocks[i].bytes));
            unaligned += (uintptr_t)blocks[i].at % 256 != 0;
            fill(host, blocks[i].bytes, round);
            MUST(cudaMemcpy(blocks[i].at, host, blocks[i].bytes, cudaMemcpyHostToDevice));
            taken++;
            live += blocks[i].bytes;
            peak = live > peak ? live : peak;
            continue;
        }
        fill(host, blocks[i].bytes, blocks[i].seed);
        MUST(cudaMemcpy(back, blocks[i].at, blocks[i].bytes, cudaMemcpyDeviceToHost));
        wrong += memcmp(host, back, blocks[i].bytes) != 0;
        MUST(cudaFree(blocks[i].at));
        live -= blocks[i].bytes;
        blocks[i].at = NULL;
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        MUST(cudaFree(blocks[i].at));
    printf("%u blocks taken, %zu bytes alive at most, %u unaligned, %u wrong\n", taken, peak, unaligned, wrong);
    SHOW(cudaGetLastError());
    return 0;
}
