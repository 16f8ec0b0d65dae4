/* The report of memory that has run out: the core's text, with what the core cannot know.

   How. The core has blocks and sites. From here come the command of this process, other processes on the device, and
   memory by other calls. Processes come from NVML where that is installed, else from the table of processes that
   segalloc serves (services/trim.h).

   Limits. 64 processes. In a container NVML numbers processes by another namespace. If this process is missing from the
   list, the list is not used.

   For example, 24 GiB are full: 20 GiB of ours, 3 GiB of process 4711 "Xorg" by NVML, 1 GiB by cuMemCreate of this
   process. The report has a row for each. */
#ifndef SG_OOM_REPORT_H
#define SG_OOM_REPORT_H

#include "core/core.h"
#include "inspect/core_state.h"

/* The text of sg_core_oom_text() with the command of this process and the other processes on the device. These are from
   NVML where that is installed, else those that segalloc serves. Takes the loader's lock; opens files. Returns the length as snprintf does. */
size_t sg_oom_report(struct sg_core *core, int device, char *buffer, size_t size);

#endif
