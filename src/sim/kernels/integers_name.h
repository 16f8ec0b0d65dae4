/* Names of PyTorch's kernels: what is known of a kernel by its name in the C++ ABI, with the types of its template. */
#ifndef SIM_INTEGERS_NAME_H
#define SIM_INTEGERS_NAME_H

#include "kernels/integers.h"

/* The kernel of that (mangled) name; form SIM_FORM_NONE where it isn't one of them. */
struct sim_integers sim_integers_named(const char *name);

#endif
