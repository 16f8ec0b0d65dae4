/* Submissions: work goes into the stream's queue, or becomes a node of its capture. */
#ifndef SIM_SUBMIT_H
#define SIM_SUBMIT_H

#include "streams/work.h"

/* Locked. Owns `work` in any case. Waits as sim_enqueue of queue.h. */
CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *ret_position);
/* And waits until it is complete, which a capture does not allow. */
CUresult sim_submit_and_wait(CUstream stream, struct sim_work *work);

#endif
