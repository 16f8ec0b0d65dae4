/* The trainings that there are: one table entry a preset, with its settings before and after somebody mended them. */
#ifndef TRAIN_PRESETS_H
#define TRAIN_PRESETS_H

#include "model/engine.h"
#include "lengths.h"
#include "model/model.h"

enum variant { VARIANT_BEFORE, VARIANT_AFTER, VARIANT_COUNT };

struct setting {
    struct shape shape;
    int batch, accumulation, longest, steps;
    const char *lengths; /* as for --lengths */
    double rate, weight_decay, clip;
    bool no_checkpoint;
    bool policy;         /* the loss scores tokens, as in reinforcement learning */
    struct engine engine;
    size_t card;         /* bytes; 0: none named */
    const char *allocator; /* what the document sets PYTORCH_CUDA_ALLOC_CONF to */
};

struct preset {
    const char *name, *text;
    struct setting settings[VARIANT_COUNT];
};

extern const struct preset presets[];
extern const int preset_count;
extern const char *const variant_names[VARIANT_COUNT];

/* NULL if there is no preset of that name. */
const struct preset *preset_find(const char *name);

#endif
