/* The table of hooked functions, by name: the rows that dlsym and cuGetProcAddress answer from.

   For example, a runtime asks cuGetProcAddress for "cuMemAlloc", version 12000. The rows with that base name are read,
   and cuMemAlloc_v2 of version 3020 is the newest that 12000 allows. Its `function` is ours, its `offset` finds the
   driver's in struct sg_real. */
#ifndef SG_HOOK_TABLE_H
#define SG_HOOK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "process/hooks.h"

/* The meaning of the default stream for which a symbol exists. */
enum sg_threads { SG_THREADS_ANY, SG_THREADS_LEGACY, SG_THREADS_PER_THREAD };

/* The type to which any function pointer may be cast and back. */
typedef void sg_any_fn(void);

/* One row of hooks.def. */
struct sg_hook_row {
    const char *symbol, *base;
    unsigned char symbol_length, base_length; /* a runtime's first call looks for some 900 names: few rows are as long */
    int version;
    enum sg_threads threads;
    sg_any_fn *function; /* ours */
    size_t offset;       /* of the driver's, in struct sg_real */
};

extern const struct sg_hook_row sg_hooks[SG_HOOK_COUNT] __attribute__((visibility("hidden")));

/* True if an address is that of one of our functions. */
bool sg_hook_is_ours(const void *function);

static inline void *sg_address_of(sg_any_fn *function)
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

#endif
