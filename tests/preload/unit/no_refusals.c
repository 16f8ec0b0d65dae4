/* For files that tell of refused allocations: none is ever open. */
#include "report/refusals.h"

atomic_uint sg_refusals_open;

void sg_refusals_serve(size_t bytes)
{
    (void)bytes;
}

void sg_refusals_serve_elsewhere(size_t bytes)
{
    (void)bytes;
}

void sg_refusals_of_torch(void)
{
}

void sg_refusals_raise(void)
{
}

void sg_refusals_ask(void)
{
}

void sg_refusals_count_questions(struct sg_core *core, int device)
{
    (void)core, (void)device;
}
