/* The functions of extra.h, which libcuda.so.1 exports besides CUDA's. */
#ifndef SIM_API_EXTRA_CALLS_H
#define SIM_API_EXTRA_CALLS_H

#include "extra.h"

#pragma GCC visibility push(default)
uint64_t segalloc_sim_used(int device);
int segalloc_sim_over_budget(int device, uint64_t bytes);
int segalloc_sim_handles(uint64_t address, uint64_t bytes);
int segalloc_sim_host(char *ret, size_t size);
size_t segalloc_sim_processes(int index, struct segalloc_sim_process *ret, size_t room);
int segalloc_sim_managed(int device, struct segalloc_sim_managed *ret);
int segalloc_sim_link(int device, struct segalloc_sim_link *ret);
void segalloc_sim_owner(uint64_t address, uint64_t bytes, uint64_t owner);
void segalloc_sim_upkeep(int on);
int segalloc_sim_block(uint64_t address, uint64_t bytes, int handed_out);
void segalloc_sim_touches(uint64_t address, uint64_t bytes, int write);
int segalloc_sim_kernel(const char *name, const char *arguments, void (*run)(void **arguments));
void segalloc_sim_condition(uint64_t handle, unsigned value);
void segalloc_sim_schedule(uint64_t seed, int64_t run_ahead);
uint64_t segalloc_sim_fault(void);
uint64_t segalloc_sim_hazards(void);
size_t segalloc_sim_calls(struct segalloc_sim_call *ret_rows, size_t max);
uint64_t segalloc_sim_ns(void);
#pragma GCC visibility pop

#endif
