#include "scratch.h"

#include <string.h>

#include "meta.h"

enum { LEAST = 1 << 16 };

bool sg_scratch_reserve(struct sg_scratch *scratch, size_t count, size_t size)
{
    if (count * size <= scratch->bytes)
        return true;
    size_t bytes = scratch->bytes ? scratch->bytes : LEAST;
    while (bytes < count * size)
        bytes *= 2;
    void *memory = sg_meta_map(bytes);
    if (!memory)
        return false;
    if (scratch->bytes)
        memcpy(memory, scratch->memory, scratch->bytes);
    sg_meta_unmap(scratch->memory, scratch->bytes);
    *scratch = (struct sg_scratch){memory, bytes};
    return true;
}

void sg_scratch_fini(struct sg_scratch *scratch)
{
    sg_meta_unmap(scratch->memory, scratch->bytes);
    *scratch = (struct sg_scratch){NULL, 0};
}
