/* The state of the process, for process.c and for main/startup.c, which changes it. process.h says what the states
   mean.

   Why it is apart: a hook asks process.h and must not see the members. Only start, fork and exit change them.

   For example, the start sets `core` and `pid`, then stores LIVE in `state` with release order. A thread that loads
   LIVE with acquire order may read both without a lock. */
#ifndef SG_PROCESS_STATE_H
#define SG_PROCESS_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "config/conf_read.h"
#include "core/core.h"
#include "process/process.h"

enum sg_process_state {
    SG_PROCESS_EARLY,
    SG_PROCESS_STARTING,
    SG_PROCESS_LIVE,
    SG_PROCESS_PASSTHROUGH,
    SG_PROCESS_CHILD,
    SG_PROCESS_EXITING
};

struct sg_process {
    _Atomic(enum sg_process_state) state;
    struct sg_core *core;           /* set before the state leaves STARTING */
    pid_t pid;                      /* likewise: of the process that the core is of */
    _Atomic(struct sg_core *) made; /* the core too, from when it may be called for contexts */
    atomic_int driver_known;        /* 0 not looked for, 1 complete, 2 lacking something */
    struct sg_driver driver;        /* guarded by SG_LOCK_REAL until `driver_known` is set, then constant */
    struct sg_driver capture_safe;  /* the driver for the core */
    atomic_bool conf_read;
    struct sg_conf
        conf; /* guarded by SG_LOCK_PROCESS; once read, `ipc` alone changes, and at the start what the card's file has */
    atomic_int watched;  /* 0 not looked at, 1 no, 2 yes */
};
extern struct sg_process sg_process __attribute__((visibility("hidden")));

/* Reads the configuration afresh. Returns how many entries were wrong, with a line to `warn` for each; NULL: no lines. */
unsigned sg_process_read_conf(struct sg_conf *conf, sg_conf_warn_fn *warn);

/* Waits for the thread that makes the core, and returns the state then. Not for ever: that thread may need the
   loader's lock, which a constructor that allocates may hold. The driver serves then. */
enum sg_process_state sg_process_wait_for_start(void);

#endif
