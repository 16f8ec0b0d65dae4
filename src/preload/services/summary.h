/* One line about the process at its end, for `segalloc run`. */
#ifndef SG_SUMMARY_H
#define SG_SUMMARY_H

#include "core.h"

/* Writes to stderr what each device held at its peak, how many allocations failed, and what to run next.
   SEGALLOC_SUMMARY says where: "always", or "terminal", where stderr is one. Without it nothing is written. Takes locks
   of the core. */
void sg_summary_print(struct sg_core *core);

#endif
