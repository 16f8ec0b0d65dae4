#include "torch/torch_symbols.h"

#include <stddef.h>

#include "process/symbols.h"

void *sg_torch_symbol(const char *library, const char *name)
{
    void *handle = sg_library_find(library);
    void *symbol = handle ? sg_dlsym()(handle, name) : NULL;
    if (handle)
        sg_library_close(handle);
    return symbol;
}
