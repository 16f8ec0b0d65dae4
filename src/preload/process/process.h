/* The part of this library in the process that it was loaded into, and the question whether a call is the core's to
   answer.

   EARLY ──first allocation──▶ STARTING ──▶ LIVE ──fork──▶ CHILD (in the child)
                                  │           │
                                  ▼           └──exit──▶ EXITING
                               PASSTHROUGH

   EARLY    Nothing has happened: no thread, no file, no output, nothing asked of the driver. A child forked now is
            EARLY again. Every call is handed on to the driver.
   STARTING One thread makes the core; others that allocate wait for it, 0.2 s at most.
   LIVE     There is a core and it answers.
   PASSTHROUGH  Everything is handed on, for good: a tool watches the driver, the configuration says so, the driver
            lacks what we need, or there was no host memory.
   CHILD    Forked from a LIVE process, where CUDA doesn't work: frees of memory of ours succeed and do nothing.
   EXITING  The process ends: frees as in CHILD, and no call to the driver that the program doesn't make itself.

   Why EARLY lasts. The library is preloaded into every program of a session, shells and compilers too. Most of them
   never allocate, so nothing may be visible of it there.

   How a call is answered. A hook calls sg_enter(), or sg_enter_allocation() if it allocates. With a core it does its
   work and calls sg_leave(). With NULL it hands the call on to the driver. Between the two the thread is *inside*:
   calls that the core makes of the driver come to the same hooks, and there sg_enter() answers NULL.

   For example, a program's first cudaMalloc of 1 MiB: state EARLY. The hook calls sg_enter_allocation(); this thread
   sets STARTING and makes the core, and a second thread that allocates meanwhile rests in steps of 50 us. Then the
   state is LIVE. The core maps a page by cuMemCreate, whose hook finds the thread inside and hands on. */
#ifndef SG_PROCESS_H
#define SG_PROCESS_H

#include <stdbool.h>

#include "config/conf.h"
#include "core/core.h"
#include "process/locks.h"
#include "process/log.h"
#include "process/thread.h"

/* The core where it is LIVE, else NULL. sg_process_core_made(): as soon as it exists, for calls about contexts. No
   lock. */
struct sg_core *sg_process_core(void);
struct sg_core *sg_process_core_made(void);

/* The core, if it is to answer this call: then sg_leave() must follow. NULL: hand the call on. That is also for a signal
   handler whose thread holds one of the locks below: the core's come before those. An allocation starts the core; other
   calls find it started or have nothing to do with it. The first one takes locks of ours and of the loader. */
struct sg_core *sg_enter_allocation(void);
struct sg_core *sg_enter(void);
void sg_leave(void);

/* Like sg_enter_allocation(), for memory that the driver serves, which takes no context: the trace begins with it. */
struct sg_core *sg_enter_traced(void);

/* True if the state is PASSTHROUGH, or will be once the program allocates. Reads the configuration. */
bool sg_process_is_passthrough(void);

/* True if a tool watches the driver: the part of sg_process_is_passthrough() that does not depend on the configuration.
   Then nothing is answered with functions of ours at all. */
bool sg_process_watched(void);

/* A context has ended, and with it any error that it had for good: memory is served again. */
void sg_process_recover(void);

/* CHILD or EXITING: the core is disabled, and the driver isn't to be asked anything. Memory of ours is still known
   by sg_process_owns(). */
bool sg_process_over(void);
bool sg_process_owns(CUdeviceptr address); /* a stand-in too: the core is asked about sg_inner() of it (stand_ins.h) */

/* The configuration in force, read on first use. Never NULL. It stays as it is but for `ipc`, which changes under
   SG_LOCK_PROCESS, with the first allocation or by sg_process_share(): who reads that holds it. */
const struct sg_conf *sg_process_conf(void);

/* From here on memory is such as legacy handles can give away. */
enum sg_share {
    SG_SHARE_FORBIDDEN, /* by ipc:never; or nothing was allocated yet */
    SG_SHARE_BEGINS,
    SG_SHARE_GOES_ON    /* it is so already; not what was allocated before */
};
enum sg_share sg_process_share(void);

/* The driver's functions as the core calls them. NULL where no libcuda is loaded, or one that lacks some that are
   required; never NULL between sg_enter() and sg_leave(). The first call takes the loader's lock. */
const struct sg_driver *sg_process_driver(void);

#endif
