/* The hazard checker: off unless SEGALLOC_SIM says "hazard". */
#ifndef SIM_HAZARD_H
#define SIM_HAZARD_H

#include "mem.h"
#include "work.h"

/* Locked, here and below. The work just submitted at `position` of `stream` touches these bytes. */
void sim_hazard_touch(CUstream stream, uint64_t position, uint64_t address, uint64_t bytes, bool write);
/* These addresses are about to lose their memory. */
void sim_hazard_unmap(uint64_t address, uint64_t bytes);

#endif
