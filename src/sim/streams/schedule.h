/* In which order, and how late, work runs where SEGALLOC_SIM says `schedule` or `run_ahead`: then no thread of the
   simulator runs any, but whoever calls the driver does, as decided here. The same seed and the same calls, made in the
   same order, give the same schedule. */
#ifndef SIM_SCHEDULE_H
#define SIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* Locked, here and below. True where work is scheduled here rather than by threads. */
bool sim_scheduled(void);
void sim_schedule_start(uint64_t seed, int64_t run_ahead);
/* Below `count`, which is not 0. */
unsigned sim_schedule_random(unsigned count);
/* How many pieces of work should run now, before anybody waits for them. */
unsigned sim_schedule_appetite(void);
/* True where a piece of work submitted after that many allocations may run before anybody waits for it. */
bool sim_schedule_due(uint64_t allocated);
/* True where the stream of that id does nothing before somebody waits for it. */
bool sim_schedule_holds(uint64_t stream);
/* The other work that a wait lets run before what it needs: none, what may run now in any case, or any. */
enum sim_strays { SIM_STRAYS_NONE, SIM_STRAYS_DUE, SIM_STRAYS_ANY };
enum sim_strays sim_schedule_strays(void);
uint64_t sim_schedule_allocations(void);
void sim_schedule_count_allocation(void);

#endif
