/* Preloaded: one process with two CUDA runtimes. Each caller's cudaMalloc goes to its own one, as the error that it
   leaves behind shows, and all memory comes from the same place. */
#include <stdlib.h>

#include "runtime.h"
#include "served.h"

int user_12_malloc(void **ret, size_t bytes);
int user_12_error(void);
int user_13_malloc(void **ret, size_t bytes);
int user_13_error(void);
int user_13_free(void *address);

int main(void)
{
    void *address;
    EXPECT(user_12_malloc(&address, (size_t)1 << 60) == cudaErrorMemoryAllocation);
    EXPECT(user_13_error() == cudaSuccess);
    EXPECT(user_12_error() == cudaErrorMemoryAllocation);
    EXPECT(user_13_malloc(&address, (size_t)1 << 60) == cudaErrorMemoryAllocation);
    EXPECT(user_12_error() == cudaSuccess);
    EXPECT(user_13_error() == cudaErrorMemoryAllocation);
    EXPECT(user_12_malloc(&address, 100) == cudaSuccess && user_13_free(address) == cudaSuccess);
    EXPECT(statistic(0, "allocs") == 1 && statistic(0, "frees") == 1);
    return failures != 0;
}
