/* Notifications of a device to a process. */
#ifndef SIM_NOTIFY_CALLS_H
#define SIM_NOTIFY_CALLS_H

#include <stdint.h>

/* segalloc_sim_over_budget() of extra.h. Not locked. */
int sim_notify_over_budget(int device, uint64_t bytes);

#endif
