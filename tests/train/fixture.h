/* What the trainer's unit tests share: a device on the stand-in runtime, and tensors seen from the host. */
#ifndef TRAIN_FIXTURE_H
#define TRAIN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layers/blocks.h"
#include "device/ops.h"

void fixture_open(struct device *ret_device);
/* Fails the test if anything is still taken. */
void fixture_close(struct device *device);

/* Normal deviates around `mean`, another sequence with each call. */
void fixture_randomise(struct tensor *tensor, float mean, float spread);
struct tensor *fixture_random(struct device *device, int64_t rows, int64_t columns, float spread);

/* Copies out what is in the tensor once all work is done; the caller frees. */
float *fixture_fetch(struct tensor *tensor);
void fixture_store(struct tensor *tensor, const float *values);

double fixture_dot(const float *a, const float *b, int64_t count);

/* Checks `gradient` (of input's shape) against central differences of `value`, along the gradient itself and along a
   random direction: relative error at most 1 %. */
void fixture_check_gradient(const char *name, double (*value)(void *context), void *context, struct tensor *input,
                            struct tensor *gradient, double distance);

#endif
