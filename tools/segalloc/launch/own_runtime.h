/* Programs that have NVIDIA's runtime within themselves, as nvcc links it unless told otherwise. On a GPU they are
   served: that runtime asks the driver, and the library answers for it. The simulated driver lacks the private tables
   that it asks for first, so there they fail at their first CUDA call. */
#ifndef SG_LAUNCH_OWN_RUNTIME_H
#define SG_LAUNCH_OWN_RUNTIME_H

#include <stdbool.h>

#include "install_paths.h"

/* The way out, after the name of a program or library: one sentence for every place that says it. */
#define SG_OWN_RUNTIME_TEXT \
    "has NVIDIA's runtime within itself; on the simulated GPU it runs only when linked with -cudart shared (CMake: " \
    "CUDA_RUNTIME_LIBRARY Shared)"

/* Set by a launch that has said so: the simulated driver then does not say it again. */
#define SG_OWN_RUNTIME_SAID "SEGALLOC_SIM_RUNTIME_SAID"

/* True if the ELF file at `path` has the runtime within itself. A library named libcudart is the runtime. */
bool sg_own_runtime_in(const char *path);

/* The first program among the words of a command that has: `env A=1 ./a.out` as well as `./a.out`. */
bool sg_own_runtime_find(char *const *command, char ret[SG_PLACE_BYTES]);

#endif
