/* The rows of hooks.def. This file alone refers to every hook, which stand above it: the one exception in
   `tests/tree/circles`. */
#include "process/hook_table.h"

const struct sg_hook_row sg_hooks[SG_HOOK_COUNT] = {
#define HOOK(symbol, base, version, threads, parameters)                                                       \
    {#symbol, #base, sizeof #symbol - 1, sizeof #base - 1, version, SG_THREADS_##threads, (sg_any_fn *)symbol, \
        offsetof(struct sg_real, symbol)},
#include "process/hooks.def"
};

/* A look through all rows: asked only where another library answers dlsym. */
bool sg_hook_is_ours(const void *function)
{
    for (int i = 0; i < SG_HOOK_COUNT; i++) {
        if (function == sg_address_of(sg_hooks[i].function))
            return true;
    }
    return false;
}
