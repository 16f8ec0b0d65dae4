/* Kernels whose arguments and effect were declared (extra.h), and what kernels and host functions are said to touch. */
#ifndef SIM_KERNELS_DECLARED_H
#define SIM_KERNELS_DECLARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "streams/work.h"

struct sim_kernel;

/* Locked, here and below. NULL for one that was not declared. */
const struct sim_kernel *sim_kernel_find(const char *name);
/* Bytes of its arguments when kept; 0 for NULL. */
size_t sim_kernel_bytes(const struct sim_kernel *kernel);
/* Keeps the arguments at `kept`, from either of the forms in which a launch has them, and notes in `work` what they say
   is touched. False where there are none. */
bool sim_kernel_arguments(const struct sim_kernel *kernel, void **params, void **extra, void *kept,
    struct sim_work *work);
/* A copy of the kernel's name that stays for good. */
const char *sim_kernel_name(const char *name);
/* Moves what this thread announced with segalloc_sim_touches() to `work`; whether there was anything. */
bool sim_touches_take(struct sim_work *work);

/* Not locked: segalloc_sim_touches and segalloc_sim_kernel of extra.h. */
void sim_touches_announce(uint64_t address, uint64_t bytes, int write);
int sim_kernel_declare(const char *name, const char *arguments, void (*run)(void **arguments));

/* Not locked: does what was declared. */
void sim_kernel_run(void *kept);

#endif
