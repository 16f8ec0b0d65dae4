/* Green contexts: a share of a device's multiprocessors with streams of its own. The context behind one is its own, over
   the memory and the modules of the primary one. */
#ifndef SIM_GREEN_H
#define SIM_GREEN_H

#include "sim.h"

struct CUgreenCtx_st {
    struct sim_handle handle;
    CUcontext context;
    unsigned count;
};

/* Not locked. The context of a green one, NULL if there is no such. */
CUcontext sim_green_context(CUgreenCtx green);

#endif
