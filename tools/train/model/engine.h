/* The rollout engine that shares the card with the training: weights of its own in fused tensors, and a pool of keys
   and values that takes what is left of its share of the card. It sleeps, holding nothing, while the training runs. */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "model/model.h"

struct engine {
    double share;  /* of the card's memory; 0: there is no engine */
    int sequences; /* that are written at once */
    int tokens;    /* that each of them gets */
};

/* One rollout: wakes, writes, sleeps. `prompt` is how many tokens the sequences begin with. */
void engine_rollout(const struct engine *engine, struct device *device, const struct shape *shape, size_t card,
                    int prompt);

#endif
