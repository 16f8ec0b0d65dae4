/* For files that tell of refused allocations: none is ever open. */
#include "no_refusals.h"

atomic_uint sg_refusals_open;
unsigned no_refusals_outside;         /* how many were noted, */
enum segalloc_outside no_refusals_by; /* … and the last */

void sg_refusals_serve(size_t bytes)
{
    (void)bytes;
}

void sg_refusals_serve_elsewhere(size_t bytes)
{
    (void)bytes;
}

void sg_refusals_add_outside(uint64_t devices, enum segalloc_outside by, size_t bytes)
{
    (void)devices, (void)bytes;
    no_refusals_by = by;
    no_refusals_outside++;
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
