/* libnccl.so as far as the library tells it from others: by its name. */
#include <stddef.h>

int cuMemGetAddressRange_v2(unsigned long long *base, size_t *bytes, unsigned long long address);
__attribute__((visibility("default")))
int nccl_range(unsigned long long *base, size_t *bytes, unsigned long long address);

int nccl_range(unsigned long long *base, size_t *bytes, unsigned long long address)
{
    volatile int result = cuMemGetAddressRange_v2(base, bytes, address);
    return result;
}
