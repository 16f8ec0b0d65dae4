/* What is printed when memory has run out: the core's text, with what it cannot know. */
#ifndef SG_OOM_REPORT_H
#define SG_OOM_REPORT_H

#include "core/core.h"
#include "inspect/core_state.h"

/* The text of sg_core_oom_text() with the command of this process and the other processes on the device. These are from
   NVML where that is installed, else those that segalloc serves. Takes the loader's lock; opens files. Returns the length as snprintf does. */
size_t sg_oom_report(struct sg_core *core, int device, char *buffer, size_t size);

#endif
