/* The rollout engine that shares the card with the training. It has weights of its own in fused tensors. Its pool of keys
   and values takes what is left of its share of the card. It sleeps while the training runs, holding nothing, or as phases.h
   says. */
#ifndef TRAIN_ENGINE_H
#define TRAIN_ENGINE_H

#include "device/phases.h"
#include "model/model.h"

struct engine {
    double share;  /* of the card's memory; 0: there is no engine */
    int sequences; /* that are written at once */
    int tokens;    /* that each of them gets */
};

/* An engine that is awake, or holds its memory while it sleeps. */
struct awake {
    struct device *device;
    const struct shape *shape;
    struct tensor **weights; /* of each layer qkv, o, gate and up, down; then embedding and head */
    struct tensor **pool;    /* of each layer keys and values */
    int weight_count;
};

/* One rollout: wakes, writes, sleeps. `prompt` is how many tokens the sequences begin with. Where phases say that the engine
   holds its memory, the first rollout takes it and engine_end() frees it; `awake` is all zeros before. */
void engine_rollout(const struct engine *engine, struct phases *phases, struct awake *awake, const struct shape *shape,
    size_t card, int prompt);
void engine_end(struct awake *awake);

#endif
