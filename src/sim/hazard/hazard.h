/* The hazard checker: off unless SEGALLOC_SIM says "hazard". */
#ifndef SIM_HAZARD_H
#define SIM_HAZARD_H

#include "streams/work.h"

/* Locked, here and below. `work` was just given its position in its stream, and order.h knows what it comes after:
   checks and notes what it touches. */
void sim_hazard_submitted(CUstream stream, const struct sim_work *work);
/* The pieces of a launched graph, as one with the launch. */
void sim_hazard_part(CUstream stream, const struct sim_work *launch, const struct sim_work *part);
/* Settles the owners of the bytes that a template of a graph touches, when it is made: the graph keeps them while it
   lives. */
void sim_hazard_settle(struct sim_work *template);
/* These addresses are about to lose their memory. */
void sim_hazard_unmap(uint64_t address, uint64_t bytes);
/* `work` found memory gone that was there when it was submitted. */
void sim_hazard_lost(const struct sim_work *work);
/* The driver has its memory back, and sees to its order itself. */
void sim_hazard_given(uint64_t address, uint64_t bytes);
uint64_t sim_hazard_reports(void);
/* Work that this thread submits on bytes that nobody owns any more is their former owner's, and tells the program nothing.
   Not locked. */
void sim_hazard_upkeep(bool on);
bool sim_hazard_is_upkeep(void);

#endif
