/* One line about the process at its end, for `segalloc run`.

   For example: "segalloc: 12.4 GiB reserved at the peak for 11.8 GiB allocated. To see what held it: segalloc report
   run.trace". */
#ifndef SG_SUMMARY_H
#define SG_SUMMARY_H

#include "core/core.h"

/* Writes to stderr what each device held at its peak, how many allocations failed, and what to run next.
   The environment says where (summary.c); unless `segalloc run` has set it, nothing is written. Takes locks of the core. */
void sg_summary_print(struct sg_core *core);

#endif
