/* What a shared object needs. */
#include "launch/elf_read.h"

#include "target.h"

static size_t length;

static void library(void *data, const char *name)
{
    (void)data;
    length += strlen(name);
}

static void symbol(void *data, const struct sg_elf_need *need)
{
    (void)data;
    length += strlen(need->symbol) + (need->version ? strlen(need->version) : 0) + (need->file ? strlen(need->file) : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sg_elf_visitor visitor = {.library = library, .symbol = symbol};
    char path[FUZZ_PATH];
    fuzz_file(data, size, path);
    (void)sg_elf_needs(path, &visitor);
    return 0;
}
