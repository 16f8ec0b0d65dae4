/* On the simulator, where calls of the driver's memory management fail: blocks come, are written, read and go. Nothing
   of that is to be noticed. Natively too. The argument says what else may be: "lossy", the driver keeps for good what
   it was to take back; "full", it has no pages any more, and serves all that it is asked for itself. */
#include <stdlib.h>

#include "runtime.h"
#include "served.h"

enum { BLOCKS = 24, STEPS = 240, LARGEST = 5 << 20, EDGE = 64 };

static struct block {
    unsigned char *address;
    size_t bytes;
    unsigned char value;
} all[BLOCKS];

static unsigned seed = 7;

static unsigned draw(unsigned below)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 8) % below;
}

static void take(struct block *block)
{
    static unsigned char value;
    block->bytes = EDGE + draw(draw(4) ? LARGEST : 40000);
    block->value = ++value;
    EXPECT(cudaMalloc((void **)&block->address, block->bytes) == cudaSuccess);
    EXPECT(cudaMemset(block->address, block->value, block->bytes) == cudaSuccess);
}

/* Its first and last bytes are what was written: no other block has had them. */
static void look(const struct block *block)
{
    unsigned char ends[2 * EDGE];
    EXPECT(cudaMemcpy(ends, block->address, EDGE, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(cudaMemcpy(ends + EDGE, block->address + block->bytes - EDGE, EDGE, cudaMemcpyDeviceToHost) == cudaSuccess);
    int same = 1;
    for (size_t i = 0; i < sizeof ends; i++)
        same = same && ends[i] == block->value;
    EXPECT(same);
}

static void trim(size_t keep)
{
    size_t (*function)(int, size_t);
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_trim");
    memcpy(&function, &symbol, sizeof function);
    if (symbol)
        function(0, keep);
}

int main(int argc, char **argv)
{
    int lossy = argc > 1 && strcmp(argv[1], "lossy") == 0, full = argc > 1 && strcmp(argv[1], "full") == 0;
    size_t before, after, total;
    void *first;
    EXPECT(cudaMalloc(&first, 1) == cudaSuccess && cudaFree(first) == cudaSuccess);
    EXPECT(cudaMemGetInfo(&before, &total) == cudaSuccess);
    for (int step = 0; step < STEPS; step++) {
        struct block *one = &all[draw(BLOCKS)];
        if (one->address) {
            look(one);
            EXPECT(cudaFree(one->address) == cudaSuccess);
            one->address = NULL;
        } else {
            take(one);
        }
        if (step % 60 == 59)
            trim(4 << 20);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (all[i].address) {
            look(&all[i]);
            EXPECT(cudaFree(all[i].address) == cudaSuccess);
        }
    }
    trim(0);
    EXPECT(cudaMemGetInfo(&after, &total) == cudaSuccess);
    EXPECT(lossy || after == before);
    EXPECT(statistic(0, "allocs") == statistic(0, "frees"));
    EXPECT(statistic(0, "allocations") == 0 && statistic(0, "requested_bytes") == 0);
    EXPECT(full || statistic(0, "passed_on") <= 8); /* then there are fixed segments */
    return failures != 0;
}
