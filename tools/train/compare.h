/* The CPU's arithmetic as the reference of the GPU's. */
#ifndef TRAIN_COMPARE_H
#define TRAIN_COMPARE_H

#include "training.h"

/* Trains twice, by the CPU in fp32 and host memory, and on the GPU of `rt` in the dtype of the options, and says how
   far the losses of each step are apart. Returns whether that is within the tolerance of the dtype; what went wrong on
   the way is said on stderr. */
bool compare_backends(FILE *out, const struct options *options, const struct cuda_rt *rt);

#endif
