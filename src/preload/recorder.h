/* The trace and the statistics file of this process. */
#ifndef SG_RECORDER_H
#define SG_RECORDER_H

#include "conf.h"
#include "core.h"

struct sg_recorder_device {
    uint64_t granularity, bytes; /* of device 0; 0 when unknown */
};

/* Opens what the configuration asks for and returns the observer for the core; nobody listens where nothing is asked
   for or a file can't be had (said on stderr). Called once, before the core exists. */
struct sg_event_sink sg_recorder_open(const struct sg_conf *conf, const struct sg_recorder_device *device);

/* Writes the statistics of `core` to their file and closes the trace; nothing is recorded afterwards. The caller makes sure
   that nobody is in the core. */
void sg_recorder_close(struct sg_core *core);

/* In a forked child: the files are the parent's. */
void sg_recorder_forget(void);

#endif
