/* The struct of a thread, and the pointer to it. The pointer is set at a thread's first call here, and never again. */
#include "process/thread.h"

__thread struct sg_thread sg_self __attribute__((aligned(64)));
__thread struct sg_thread *sg_self_found;
_Atomic unsigned sg_fast_path_epoch;

struct sg_thread *sg_thread_find(void)
{
    sg_self_found = &sg_self;
    return sg_self_found;
}

bool sg_thread_inside(void)
{
    return sg_self.inside;
}

bool sg_thread_enter(void)
{
    bool outer = sg_self.inside;
    sg_self.inside = true;
    return outer;
}

void sg_thread_leave(bool outer)
{
    sg_self.inside = outer;
}
