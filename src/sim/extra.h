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

/* Says whose bytes these are from now on, to the hazard checker; where nobody said, an allocation is its own owner. */
typedef void (*segalloc_sim_owner_fn)(uint64_t address, uint64_t bytes, uint64_t owner);
/* How many hazards were reported so far; each on stderr too. */
typedef uint64_t (*segalloc_sim_hazards_fn)(void);

#pragma GCC visibility push(default)
void segalloc_sim_owner(uint64_t address, uint64_t bytes, uint64_t owner);
uint64_t segalloc_sim_hazards(void);
size_t segalloc_sim_calls(struct segalloc_sim_call *ret_rows, size_t max);
uint64_t segalloc_sim_ns(void);
#pragma GCC visibility pop

#endif
