#include "core/space/extents.h"

#include "base/meta.h"

/* Addresses are set aside for 16 M extents and as many cells, 2 GiB of them. A cell is for two units, so 16 M cells
   cover the first 16 GiB of the small region. Where address space is short, half as many are tried, down to 64 K of
   each. */
enum { EXTENTS_MOST = 1 << 24, EXTENTS_LEAST = 1 << 16 };

/* Twice as many addresses are reserved first, and half of those given back at once. So a process with a limit on its
   addresses (ulimit -v) keeps at least as many for the program and its driver as the extents take. */
bool sg_extents_init(struct sg_extents *extents)
{
    for (uint32_t capacity = EXTENTS_MOST; capacity >= EXTENTS_LEAST; capacity /= 2) {
        size_t count = 2 * (size_t)capacity;
        struct sg_extent *memory = sg_meta_map(2 * count * sizeof *memory);
        if (memory) {
            sg_meta_unmap(memory + count, count * sizeof *memory);
            *extents = (struct sg_extents){.extent = memory, .used = 1, .capacity = capacity, .cells = capacity};
            return true;
        }
    }
    return false;
}

void sg_extents_note_site_locked(struct sg_extents *extents, uint32_t extent, uint32_t site, uint32_t phase)
{
    SG_ASSERT_EXTENTS_LOCK(extents);
    if (!extents->sites)
        extents->sites = sg_meta_map((extents->capacity + extents->cells) * sizeof *extents->sites);
    if (extents->sites)
        extents->sites[extent] = (struct sg_extent_site_locked){site, phase};
}

void sg_extents_fini(struct sg_extents *extents)
{
    if (extents->sites)
        sg_meta_unmap(extents->sites, (extents->capacity + extents->cells) * sizeof *extents->sites);
    sg_meta_unmap(extents->extent, (extents->capacity + extents->cells) * sizeof *extents->extent);
    *extents = (struct sg_extents){0};
}
