#include "work/lost.h"

#include "device/context.h"
#include "hazard/hazard.h"
#include "space/mapping.h"
#include "space/span.h"

uint64_t sim_lost_address(uint64_t address, uint64_t size, bool write)
{
    const struct sim_memory *memory = size ? sim_memory_find(address) : NULL;
    if (!memory || memory->kind != SIM_MEMORY_RESERVATION)
        return 0;
    /* Rights are a granule's, so the first byte of a granule stands for it. */
    for (uint64_t at = address, end = address + size; at < end; at = (at / SIM_GRANULE + 1) * SIM_GRANULE)
        if (sim_span(at, 1, write, NULL) != SIM_SPAN_DEVICE)
            return at;
    return 0;
}

void sim_work_lost(const struct sim_work *work, uint64_t address)
{
    if (work->dropped || work->context->error != CUDA_SUCCESS)
        return;
    work->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    work->context->fault = address;
    sim_hazard_lost(work);
}
