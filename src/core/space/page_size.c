/* A loop and no logarithm: it runs once a device, and four times for 192 GB, whose pages are of 32 MiB. */
#include "core/space/page_size.h"

uint64_t sg_core_page_bytes(uint64_t granularity, uint64_t bytes, uint64_t mappings)
{
    uint64_t page = granularity;
    while (bytes / page > sg_pages_when_full(mappings))
        page *= 2;
    return page;
}
