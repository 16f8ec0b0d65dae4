#include "meta.h"

#include <sys/mman.h>

void *sg_meta_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void sg_meta_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}
