/* A library that is linked with the runtime of CUDA USER. */
#include <stddef.h>

#define NAME2(user, what) user_##user##_##what
#define NAME1(user, what) NAME2(user, what)
#define NAME(what) NAME1(USER, what)
#define EXPORT __attribute__((visibility("default")))

int cudaMalloc(void **ret, size_t bytes);
int cudaFree(void *address);
int cudaGetLastError(void);

EXPORT int NAME(malloc)(void **ret, size_t bytes);
EXPORT int NAME(free)(void *address);
EXPORT int NAME(error)(void);

int NAME(malloc)(void **ret, size_t bytes)
{
    volatile int result = cudaMalloc(ret, bytes);
    return result;
}

int NAME(free)(void *address)
{
    volatile int result = cudaFree(address);
    return result;
}

int NAME(error)(void)
{
    return cudaGetLastError();
}
