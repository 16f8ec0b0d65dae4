/* libnccl.so, and others that call the driver by themselves, as far as the library tells them from the rest: by their
   names. */
#include <stddef.h>

int cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes, unsigned long long address);
int cuMemAlloc_v2(unsigned long long *ret, size_t bytes);
__attribute__((visibility("default"))) int nccl_alloc(unsigned long long *ret, size_t bytes);
__attribute__((visibility("default")))
int nccl_range(unsigned long long *base, size_t *bytes, unsigned long long address);

int nccl_range(unsigned long long *base, size_t *bytes, unsigned long long address)
{
    volatile int result = cuMemGetAddressRange_v2(base, bytes, address);
    return result;
}

/* As a runtime does that is inside the library. */
int nccl_alloc(unsigned long long *ret, size_t bytes)
{
    volatile int result = cuMemAlloc_v2(ret, bytes);
    return result;
}
