/* The driver's calls for pages, for allocators of a script's own that are built without CUDA's headers. Sizes in bytes; 0 is
   CUDA_SUCCESS. */
#ifndef POOLS_DRIVER_PAGES_H
#define POOLS_DRIVER_PAGES_H

#include <stddef.h>
#include <stdint.h>

struct location {
    int type, id;
};
struct prop {
    int type, handle_types;
    struct location location;
    void *win32;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};
struct access {
    struct location location;
    int flags;
};

int cuMemAddressReserve(uint64_t *ret, size_t bytes, size_t alignment, uint64_t address, unsigned long long flags);
int cuMemAddressFree(uint64_t address, size_t bytes);
int cuMemCreate(unsigned long long *ret, size_t bytes, const struct prop *prop, unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cuMemMap(uint64_t address, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
int cuMemUnmap(uint64_t address, size_t bytes);
int cuMemSetAccess(uint64_t address, size_t bytes, const struct access *access, size_t count);

#endif
