#include "device/green.h"

CUcontext sim_green_context(CUgreenCtx green)
{
    sim_lock();
    CUcontext context = sim_handle_valid(green, SIM_KIND_GREEN) ? green->context : NULL;
    sim_unlock();
    return context;
}
