/* On the simulated GPU, with its hazard checker on, each block is declared when it is handed out and when it is freed,
   so that work of two blocks' owners on the same bytes, in no order, is noticed in any program. Elsewhere nothing is
   done but that a clock is found. */
#ifndef SG_DECLARE_H
#define SG_DECLARE_H

#include <stdbool.h>

#include "core.h"

/* Looks for a checker that is on; once, before the first block. */
void sg_declare_start(void);

/* What driver calls are measured by: the simulator's time where it is the driver, which is what they would take on a GPU. */
uint64_t (*sg_declare_clock(void))(void);

/* Whether there is one. No lock. */
extern bool sg_declare_on __attribute__((visibility("hidden")));

/* A block of ours was handed out; is about to be freed by the program. What is no live block is left alone. */
void sg_declare_given(CUdeviceptr address, size_t bytes);
void sg_declare_freed(struct sg_core *core, CUdeviceptr address);

#endif
