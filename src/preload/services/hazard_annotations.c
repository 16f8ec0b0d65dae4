/* The simulator's function, found by name. */
#include "services/hazard_annotations.h"

#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "process/symbols.h"

bool sg_annotate_on;

/* The simulator's functions (sim/extra.h), found by their names and never linked. */
static int (*block)(uint64_t address, uint64_t bytes, int handed_out);
static void (*upkeep)(int on);
static int (*link_of)(int device, struct sg_annotate_link *ret);

void sg_annotate_start(void)
{
    void *symbol = sg_cuda_symbol("segalloc_sim_block");
    memcpy(&block, &symbol, sizeof block);
    sg_annotate_on = block && block(0, 0, 0);
    symbol = sg_annotate_on ? sg_cuda_symbol("segalloc_sim_upkeep") : NULL;
    memcpy(&upkeep, &symbol, sizeof symbol);
    symbol = sg_cuda_symbol("segalloc_sim_link");
    memcpy(&link_of, &symbol, sizeof symbol);
}

uint64_t (*sg_annotate_clock(void))(void)
{
    uint64_t (*simulated)(void);
    void *symbol = sg_cuda_symbol("segalloc_sim_ns");
    memcpy(&simulated, &symbol, sizeof simulated);
    return symbol ? simulated : sg_clock_ns;
}

struct sg_annotate_link sg_annotate_link(int device)
{
    struct sg_annotate_link link = {0};
    if (link_of && link_of(device, &link) != 0)
        link = (struct sg_annotate_link){0};
    return link;
}

void sg_annotate_upkeep(bool on)
{
    if (upkeep)
        upkeep(on);
}

void sg_annotate_given(CUdeviceptr address, size_t bytes)
{
    (void)block(address, bytes, 1);
}

void sg_annotate_freed(struct sg_core *core, CUdeviceptr address)
{
    struct sg_block_info info;
    if (sg_core_block(core, address, &info) == CUDA_SUCCESS && info.base == address)
        (void)block(address, info.bytes, 0);
}
