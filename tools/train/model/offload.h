/* Parts of parameters, gradients and moments that lie in page-locked host memory: offloading. The optimizer's step on
   them is made on the host, by the CPU's kernels. */
#ifndef TRAIN_MODEL_OFFLOAD_H
#define TRAIN_MODEL_OFFLOAD_H

#include "model/model.h"

struct offload {
    int64_t count;
    enum dtype dtype; /* of value */
    /* All NULL in a dry run. */
    void *value;      /* as the computation wants it */
    float *master, *gradient, *mean, *variance; /* only of what is trained */
    void *incoming;   /* from the device; scratch of the optimizer's step */
    enum dtype incoming_dtype;
    bool has_gradient, has_moments;
};

/* Room for a part of `count` elements. The first `present` of them are on their way from `from` at element `from_at`; the
   others are zero. offload_complete makes the rest of it. */
struct offload *offload_new(struct device *device, enum dtype dtype, int64_t count, bool trained, struct tensor *from,
    int64_t from_at, int64_t present);
void offload_free(struct device *device, struct offload *offload);

/* Once the device has been waited for: value and master from what came. */
void offload_complete(struct offload *offload);

/* Queues: the gradient in `flat` at element `at` is added to the one here. */
void offload_add_gradient(struct device *device, struct offload *offload, struct tensor *flat, int64_t at);

/* The norm of the gradients of these parameters' parts, over all ranks. Everything queued must be done. */
float offload_norm(struct device *device, struct parameter *const *parameters, int count);
/* One step of AdamW as optimizer.c makes it; the gradients, scaled by `factor`, are gone afterwards. */
struct adam {
    float beta1, beta2, correction, epsilon, rate, keep;
};
void offload_step(struct offload *offload, const struct adam *adam, float factor);

/* `values` of the whole part, which resuming brings. */
enum stored { STORED_VALUE, STORED_MEAN, STORED_VARIANCE };
void offload_store(struct offload *offload, enum stored what, const float *values, int64_t present);

#endif
