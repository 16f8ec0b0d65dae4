#include "work/lost.h"

#include "device/context.h"
#include "hazard/hazard.h"

void sim_work_lost(const struct sim_work *work, uint64_t address)
{
    if (work->dropped || work->context->error != CUDA_SUCCESS)
        return;
    work->context->error = CUDA_ERROR_ILLEGAL_ADDRESS;
    work->context->fault = address;
    sim_hazard_lost(work);
}
