/* One training run: micro-steps of forward and backward, and the optimizer's step after them. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "layers/blocks.h"
#include "model/optimizer.h"

struct micro_step {
    int64_t batch, length;
    const int64_t *tokens; /* page-locked, batch * length; unchanged until device_wait */
    float *ret_loss;       /* page-locked; there after device_wait */
    bool packed;           /* as struct pass */
    const int64_t *starts;
    uint64_t number;       /* of all micro-steps of the run, from 1 */
    int parts;             /* micro-steps a step: the loss is divided by it */
};

/* Tensors of the last micro-step that PyTorch's program still holds when the next begins. */
struct leftovers {
    struct tensor *tokens, *gradient, *embedded, *loss;
};

struct schedule {
    struct device *device;
    struct model *model;
    bool checkpoint, policy;
    uint64_t seed; /* of what dropout drops */
    struct leftovers last;
    struct tensor **inputs;    /* of each layer, while checkpointing */
    struct layer_saved *saved; /* of each layer; of one while checkpointing */
};

void schedule_open(struct schedule *schedule, struct device *device, struct model *model, bool checkpoint);
void schedule_close(struct schedule *schedule);

/* Queues a forward alone, as an evaluation without gradients does. */
void schedule_evaluate(struct schedule *schedule, const struct micro_step *micro);

/* Queues forward and backward of one batch; gradients are added to those there. */
void schedule_micro_step(struct schedule *schedule, const struct micro_step *micro);

#endif
