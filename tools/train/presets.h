/* What can be trained: one table entry a preset. */
#ifndef TRAIN_PRESETS_H
#define TRAIN_PRESETS_H

#include "lengths.h"
#include "model.h"

struct preset {
    const char *name, *text;
    struct shape shape;
    int batch, accumulation, longest, steps;
    const char *lengths; /* as for --lengths */
    double rate, weight_decay, clip;
};

extern const struct preset presets[];
extern const int preset_count;

/* NULL if there is no preset of that name. */
const struct preset *preset_find(const char *name);

#endif
