/* Execution of the work in the streams' queues. The simulator's own threads run it, and threads of the program that wait.
   Under the setting `schedule`, threads of the program that call the driver run all of it. */
#ifndef SIM_EXECUTOR_H
#define SIM_EXECUTOR_H

#include "streams/work.h"

/* Locked, but for the two where it says otherwise. */

/* Has the stream's queue run, to which `work` was just added. `caller_waits`: the caller waits for `work` next. No other
   thread is woken then for work that a waiting thread may do. */
void sim_executor_start(CUstream stream, const struct sim_work *work, bool caller_waits);
/* Wakes the waiters of the stream, after `completed` or its queue has changed. The caller has a reference to it. */
void sim_executor_announce(CUstream stream);
/* Waits until the stream has completed `position`, doing other work meanwhile. The caller has a reference to it. */
CUresult sim_executor_wait(CUstream stream, uint64_t position);
/* Waits a little, without the lock, for an event outside this process; the work of this process goes on meanwhile. */
void sim_wait_elsewhere(void);
/* True once no further work starts, since the process ends. */
bool sim_executor_stopped(void);
/* Starts no further work, and waits a bounded time for running work. Not locked. */
void sim_executor_stop(void);

/* Runs the function of `work`, for as long as its kernel takes; under a schedule no time passes. The caller deals with
   `host_sees` and `finish`. Not locked. */
void sim_work_perform(struct sim_work *work);

/* With the setting `schedule`: lets some work run, or none; the seed decides. */
void sim_schedule_step(void);
/* Counts a query of `what` that found it `ready` or not. A program that polls is waiting, so work runs for it. */
void sim_schedule_polled(const void *what, bool ready);
/* Counts an allocation of this process, and lets work run. */
void sim_schedule_allocated(void);

#endif
