/* Clipping by the norm of all gradients, and AdamW, as PyTorch's multi-tensor versions do them. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "model/model.h"

struct optimizer {
    double rate, beta1, beta2, epsilon, weight_decay, clip; /* clip 0: none */
    int steps; /* made so far */
};

/* One step over all trained parameters, whose moments are made at the first; then drops the gradients. */
void optimizer_step(struct optimizer *optimizer, struct device *device, struct model *model);

#endif
