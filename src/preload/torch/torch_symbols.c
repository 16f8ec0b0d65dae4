#include "torch/torch_symbols.h"

#include <stddef.h>

#include "process/symbols.h"

/* The handle is given back: PyTorch's libraries are not unloaded. */
void *sg_torch_symbol(const char *library, const char *name)
{
    void *handle = sg_library_find(library);
    void *symbol = handle ? sg_dlsym()(handle, name) : NULL;
    if (handle)
        sg_library_close(handle);
    return symbol;
}
