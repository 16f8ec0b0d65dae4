/* A driver that lacks nearly all: it starts, and serves memory. */
#include <stddef.h>

#include "bare.h"

#define SHOWN __attribute__((visibility("default")))

static int live;

SHOWN int cuInit(unsigned flags);
SHOWN int cuInit(unsigned flags)
{
    return flags != 0;
}

SHOWN int cuMemAlloc_v2(unsigned long long *ret, size_t bytes);
SHOWN int cuMemAlloc_v2(unsigned long long *ret, size_t bytes)
{
    live += bytes != 0;
    *ret = BARE_ADDRESS;
    return bytes == 0;
}

SHOWN int cuMemFree_v2(unsigned long long address);
SHOWN int cuMemFree_v2(unsigned long long address)
{
    live -= address == BARE_ADDRESS;
    return address != BARE_ADDRESS;
}

SHOWN int bare_live(void);
SHOWN int bare_live(void)
{
    return live;
}
