/* Parameters, gradients and moments of which each rank keeps a part, on the device or, offloaded, in host memory.
   Without sharding everything here does nothing. */
#ifndef TRAIN_SHARD_H
#define TRAIN_SHARD_H

#include "model/offload.h"

/* Keeps this rank's part of the parameter's new value, and lets go of the whole where parameters are sharded. */
void parameter_shard(struct device *device, struct model *model, struct parameter *parameter);
/* Once after that for all: waits until what is offloaded has arrived. */
void shard_settle(struct device *device, struct model *model);

/* Takes the whole values of these parameters, through flat buffers as a collective does; and lets go of them. */
void shard_gather(struct device *device, struct model *model, struct parameter *const *parameters, int count);
void shard_release(struct model *model, struct parameter *const *parameters, int count);

/* Sums the whole gradients that these parameters have got over the ranks, bucket by bucket, and keeps this rank's part
   of each. */
void shard_reduce(struct device *device, struct model *model, struct parameter *const *parameters, int count);

/* The tensor that the optimizer works on: the part, a float copy of it, or the value itself. */
struct tensor *shard_target(struct parameter *parameter);
/* After the optimizer's step: brings the values to where they are kept. */
void shard_update(struct device *device, struct model *model, struct parameter *const *trained, int count);

/* For a training on disk, of any trained parameter, sharded or not. All ranks' parts as one float tensor, whose first
   elements are those of the parameter; NULL for moments that are not there yet. */
struct tensor *shard_whole(struct device *device, struct model *model, struct parameter *parameter, enum stored what);
/* The other way: `whole` is a float tensor, `values` the same on the host. Joins transfers, waits for nothing. */
void shard_store(struct device *device, struct model *model, struct parameter *parameter, enum stored what,
                 struct tensor *whole, const float *values);

#endif
