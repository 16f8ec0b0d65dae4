/* Mechanisms that fragment memory, each by itself: one table entry a scenario. Some are a training with settings that
   bring the mechanism out, the others a bare sequence of allocations. */
#ifndef TRAIN_SCENARIO_H
#define TRAIN_SCENARIO_H

#include "presets.h"

struct scenario {
    const char *name, *text;
    const char *setting; /* of PYTORCH_CUDA_ALLOC_CONF under which it shows */
    const char *preset;  /* NULL: `round` is called for each step */
    int steps;
    void (*adjust)(struct setting *setting);
    /* `kept` holds what outlives the round; `number` counts from 0. */
    void (*round)(struct device *device, struct tensor **kept, int number);
};

extern const struct scenario scenarios[];
extern const int scenario_count;
enum { SCENARIO_KEPT = 1024 }; /* most tensors that a scenario keeps */

/* NULL if there is no scenario of that name. */
const struct scenario *scenario_find(const char *name);

#endif
