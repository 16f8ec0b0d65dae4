/* An allocator whose memory leaves while tensors live in it, and comes back to the same addresses: as engines of inference
   sleep (vLLM's CuMemAllocator). Each allocation is a reserved address with memory of its own behind it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "driver_pages.h"

enum { BLOCKS = 64, GRANULARITY = 2 << 20 };

void *own_malloc(size_t bytes, int device, void *stream);
void own_free(void *address, size_t bytes, int device, void *stream);
int own_sleep(void), own_wake(void);

static struct block {
    uint64_t address;
    size_t bytes;
    unsigned long long handle;
} block[BLOCKS];

static int fill(struct block *b)
{
    struct prop prop;
    memset(&prop, 0, sizeof prop);
    prop.type = prop.location.type = 1; /* pinned, on a device */
    struct access access = {{1, 0}, 3};
    if (cuMemCreate(&b->handle, b->bytes, &prop, 0) != 0)
        return -1;
    if (cuMemMap(b->address, b->bytes, 0, b->handle, 0) != 0)
        return -1;
    return cuMemSetAccess(b->address, b->bytes, &access, 1);
}

static int empty(struct block *b)
{
    return cuMemUnmap(b->address, b->bytes) || cuMemRelease(b->handle);
}

void *own_malloc(size_t bytes, int device, void *stream)
{
    (void)device, (void)stream;
    for (struct block *b = block; b < block + BLOCKS; b++)
        if (!b->address) {
            b->bytes = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
            if (cuMemAddressReserve(&b->address, b->bytes, 0, 0, 0) == 0 && fill(b) == 0)
                return (void *)(uintptr_t)b->address;
            return NULL;
        }
    return NULL;
}

void own_free(void *address, size_t bytes, int device, void *stream)
{
    (void)device, (void)stream, (void)bytes;
    for (struct block *b = block; b < block + BLOCKS; b++)
        if (b->address == (uintptr_t)address) {
            (void)empty(b);
            (void)cuMemAddressFree(b->address, b->bytes);
            memset(b, 0, sizeof *b);
        }
}

int own_sleep(void)
{
    int wrong = 0;
    for (struct block *b = block; b < block + BLOCKS; b++)
        wrong += b->address && empty(b) != 0;
    return wrong;
}

int own_wake(void)
{
    int wrong = 0;
    for (struct block *b = block; b < block + BLOCKS; b++)
        wrong += b->address && fill(b) != 0;
    return wrong;
}
