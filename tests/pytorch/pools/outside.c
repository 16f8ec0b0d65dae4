/* A script's own allocator that asks the driver by other calls than cudaMalloc: OWN_BY=create, async or managed. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "driver_pages.h"

enum { BLOCKS = 64, GRANULARITY = 2 << 20, GLOBAL = 1 };

int cuMemAllocAsync(uint64_t *ret, size_t bytes, void *stream);
int cuMemFreeAsync(uint64_t address, void *stream);
int cuMemAllocManaged(uint64_t *ret, size_t bytes, unsigned flags);
int cuMemFree_v2(uint64_t address);
void *own_malloc(size_t bytes, int device, void *stream);
void own_free(void *address, size_t bytes, int device, void *stream);
size_t own_live(void);
int own_refused(void);

static struct block {
    uint64_t address;
    size_t bytes;
    unsigned long long handle;
} block[BLOCKS];
static size_t live;
static int refused;

static int is_by(const char *call)
{
    const char *by = getenv("OWN_BY");
    return by && strcmp(by, call) == 0;
}

/* Addresses with memory of their own; nothing is left of what fails half-way. */
static int create(struct block *b)
{
    struct prop prop;
    memset(&prop, 0, sizeof prop);
    prop.type = prop.location.type = 1; /* pinned, on a device */
    struct access access = {{1, 0}, 3};
    int error = cuMemCreate(&b->handle, b->bytes, &prop, 0);
    if (error)
        return error;
    error = cuMemAddressReserve(&b->address, b->bytes, 0, 0, 0);
    if (!error)
        error = cuMemMap(b->address, b->bytes, 0, b->handle, 0);
    return error ? error : cuMemSetAccess(b->address, b->bytes, &access, 1);
}

void *own_malloc(size_t bytes, int device, void *stream)
{
    (void)device;
    struct block *b = block;
    while (b < block + BLOCKS && b->bytes)
        b++;
    if (b == block + BLOCKS)
        return NULL;
    b->bytes = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    int error = is_by("create")  ? create(b)
                : is_by("async") ? cuMemAllocAsync(&b->address, b->bytes, stream)
                                 : cuMemAllocManaged(&b->address, b->bytes, GLOBAL);
    if (error) {
        refused++;
        memset(b, 0, sizeof *b);
        return NULL;
    }
    live += b->bytes;
    return (void *)(uintptr_t)b->address;
}

void own_free(void *address, size_t bytes, int device, void *stream)
{
    (void)bytes, (void)device;
    for (struct block *b = block; b < block + BLOCKS; b++)
        if (b->bytes && b->address == (uintptr_t)address) {
            live -= b->bytes;
            if (is_by("create")) {
                (void)cuMemUnmap(b->address, b->bytes);
                (void)cuMemRelease(b->handle);
                (void)cuMemAddressFree(b->address, b->bytes);
            } else if (is_by("async"))
                (void)cuMemFreeAsync(b->address, stream);
            else
                (void)cuMemFree_v2(b->address);
            memset(b, 0, sizeof *b);
        }
}

size_t own_live(void)
{
    return live;
}

int own_refused(void)
{
    return refused;
}
