/* The trace and the statistics file of this process.

   How. The core calls an observer under its lock, which writes 32 bytes into the mapped trace. Files begin with the
   first event and are kept right all the time, since a process may be killed. Statistics are written at events 1, 2, 4
   and so on to 256, then twice a second at most.

   Limits. One thread writes statistics at a time; others go on without. A file that can't be written is given up, with
   a line.

   For example, a program makes 3 allocations and is killed. The trace has 3 records of 32 bytes, and the statistics
   those of the second event. */
#ifndef SG_RECORDER_H
#define SG_RECORDER_H

#include <stdbool.h>

#include "config/conf.h"
#include "core/core.h"

/* Makes ready what the configuration asks for and returns the observer for the core; nobody listens where nothing is
   asked for or can't be had (said on stderr). No file and no thread before the first event. Called once, before the
   core exists. */
struct sg_event_sink sg_recorder_open(const struct sg_conf *conf);

/* Notes that `device` is about to be used for the first time: asks the driver for what the files say about it. */
void sg_recorder_device(const struct sg_driver *driver, int device);

/* After each allocation and free: takes a snapshot of the statistics of `device` when one is due. So the files are
   right also where the process is killed. */
void sg_recorder_tick(struct sg_core *core, int device);

/* Writes definitions to the trace, all of them or at least not the last one: false then. True where there is no trace. */
bool sg_recorder_define(struct segalloc_trace_record *define, uint32_t count);

/* Writes the program's current phase as text, for the statistics. The recorder calls it at any time, under no lock. */
enum { SG_RECORDER_PHASE = 256 };
typedef void sg_recorder_phase_fn(char *text, size_t size);
void sg_recorder_follow_phase(sg_recorder_phase_fn *write);

/* Writes the last snapshots and closes the files; nothing is recorded afterwards. */
void sg_recorder_close(struct sg_core *core);

/* The file of the trace that is being written, NULL where there is none. */
const char *sg_recorder_path(void);

/* In a forked child: the files are the parent's. */
void sg_recorder_forget(void);

/* True if there is a trace or a statistics file at all. Set before the core is there. */
extern bool sg_recorder_on __attribute__((visibility("hidden")));

#endif
