/* Parameters, gradients and moments of which each rank keeps a part. Without sharding everything here does nothing. */
#ifndef TRAIN_SHARD_H
#define TRAIN_SHARD_H

#include "model.h"

/* Keeps this rank's part of the parameter's new value, and lets go of the whole where parameters are sharded. */
void parameter_shard(struct device *device, struct model *model, struct parameter *parameter);

/* Takes the whole values of these parameters, through flat buffers as a collective does; and lets go of them. */
void shard_gather(struct device *device, struct model *model, struct parameter *const *parameters, int count);
void shard_release(struct model *model, struct parameter *const *parameters, int count);

/* Sums the whole gradients that these parameters have got over the ranks, bucket by bucket, and keeps this rank's part
   of each. */
void shard_reduce(struct device *device, struct model *model, struct parameter *const *parameters, int count);

/* What the optimizer works on: the part, a float copy of it, or the value itself. */
struct tensor *shard_target(struct parameter *parameter);
/* After the optimizer's step: brings the values to where they are kept. */
void shard_update(struct device *device, struct model *model, struct parameter *const *trained, int count);

#endif
