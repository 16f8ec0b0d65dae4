/* Steps of a program. The name of a step's phase ends in a number that counts up: "step 12". PyTorch's optimizers, segalloc.mark() and
   ranges of NVTX make such phases. */
#ifndef SG_PHASE_STEP_H
#define SG_PHASE_STEP_H

#include <stdint.h>

#include "reader/site_book.h"

/* The step of a phase: the number of the outermost one around it that has one, or -1. */
int64_t sg_phase_step(const struct sg_site_book *book, uint32_t phase);

#endif
