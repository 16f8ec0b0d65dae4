/* Collectives on device memory: queued on the device's stream, and every rank queues the same calls in the same order.
   Through MPI by way of page-locked memory, or by NCCL where a GPU's own arithmetic is used and the library is there.

   For example, two ranks reduce 4 elements of 1 and 2: each ends with its own half of them, 2 elements of 3. */
#ifndef TRAIN_COLLECTIVES_H
#define TRAIN_COLLECTIVES_H

#include "ranks/comm.h"

struct device;

/* For what is queued on `device`. Returns 0, or -1 with one line in `error`. */
int comm_attach(struct comm *comm, struct device *device, char *error, size_t error_size);
void comm_detach(struct comm *comm, struct device *device);

/* `buffer` has a piece of `bytes` for each rank, its own filled in; afterwards all are. */
void comm_all_gather(struct comm *comm, struct device *device, void *buffer, size_t bytes);
/* `buffer` has a piece of `count` elements for each rank. Afterwards a rank's own piece is the sum of all ranks' pieces for
   it, and the others are undefined. MPI makes the sum in the order of the ranks, in float. */
void comm_reduce_scatter(struct comm *comm, struct device *device, void *buffer, int64_t count, enum dtype dtype);

#endif
