/* On a libcuda.so.1 that jumps into another one: every allocation is served, whoever's functions it hands out. */
#include "../programs/runtime.h"
#include "../programs/served.h"

int main(void)
{
    enum { COUNT = 100 };
    void *block[COUNT];
    for (int i = 0; i < COUNT; i++)
        EXPECT(cudaMalloc(&block[i], 1 << 20) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == COUNT);
    EXPECT(statistic(0, "driver_allocs") == 0);
    for (int i = 0; i < COUNT; i++)
        EXPECT(cudaFree(block[i]) == cudaSuccess);
    EXPECT(statistic(0, "frees") == COUNT);
    return failures != 0;
}
