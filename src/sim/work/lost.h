/* Work that finds its memory unmapped when it runs: what a GPU reports as an illegal address.

   The context is lost then: each later call answers CUDA_ERROR_ILLEGAL_ADDRESS, as the text of that error in cuda.h says.
   For example, a kernel reads 8 KiB at A, of which 4 KiB are mapped. The next cuStreamSynchronize answers 700, and
   segalloc_sim_fault() says A + 4,096. */
#ifndef SIM_WORK_LOST_H
#define SIM_WORK_LOST_H

#include "streams/work.h"

/* Locked. The work has found no memory at `address`: its context is lost, unless it was before or the work was dropped. */
void sim_work_lost(const struct sim_work *work, uint64_t address);

#endif
