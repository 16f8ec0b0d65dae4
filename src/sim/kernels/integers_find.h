/* Kernels that find elements: CUB's sums and selection, and PyTorch's kernel that makes indices of them. */
#ifndef SIM_INTEGERS_FIND_H
#define SIM_INTEGERS_FIND_H

#include "kernels/integers_parts.h"

void sim_integers_count(const struct kept *kept);
void sim_integers_select_begin(const struct kept *kept);
void sim_integers_select(const struct kept *kept);
void sim_integers_unravel(const struct kept *kept);

#endif
