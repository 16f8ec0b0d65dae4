#include "alloc.h"

#include <stdlib.h>

struct eager {
    struct allocator base;
    const struct cuda_rt *rt;
};

static int eager_take(struct allocator *self, size_t bytes, void **ret_pointer)
{
    return ((struct eager *)self)->rt->cudaMalloc(ret_pointer, bytes);
}

static int eager_give(struct allocator *self, void *pointer, size_t bytes)
{
    (void)bytes;
    return ((struct eager *)self)->rt->cudaFree(pointer);
}

static void eager_close(struct allocator *self)
{
    free(self);
}

struct allocator *alloc_eager_open(const struct cuda_rt *rt)
{
    struct eager *eager = calloc(1, sizeof *eager);
    if (!eager)
        abort();
    eager->base = (struct allocator){eager_take, eager_give, eager_close};
    eager->rt = rt;
    return &eager->base;
}
