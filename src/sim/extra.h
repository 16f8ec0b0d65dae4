/* What the simulator offers beside CUDA, for tests and tools: exported by libcuda.so.1, to be found with dlsym, so that
   a program that asks runs on a real driver too. */
#ifndef SIM_EXTRA_H
#define SIM_EXTRA_H

#include <stddef.h>
#include <stdint.h>

struct segalloc_sim_call {
    const char *symbol; /* as exported, "cuMemAlloc_v2"; calls of a …_ptsz form count here too */
    uint64_t calls;
    uint64_t ns; /* what these calls would have cost on a GPU, by cost.def */
};

/* Fills up to `max` rows and returns how many entry points there are. */
typedef size_t (*segalloc_sim_calls_fn)(struct segalloc_sim_call *ret_rows, size_t max);
/* Virtual time of all calls so far, in ns. */
typedef uint64_t (*segalloc_sim_ns_fn)(void);

#pragma GCC visibility push(default)
size_t segalloc_sim_calls(struct segalloc_sim_call *ret_rows, size_t max);
uint64_t segalloc_sim_ns(void);
#pragma GCC visibility pop

#endif
