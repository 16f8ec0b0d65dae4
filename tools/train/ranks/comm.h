/* The ranks of a training and what they tell each other. On device memory: queued on the device's stream, and every
   rank queues the same calls in the same order. Through MPI by way of page-locked memory, or by NCCL where a GPU's own
   arithmetic is used and the library is there. */
#ifndef TRAIN_COMM_H
#define TRAIN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/arithmetic.h"

struct comm {
    int rank, ranks;
    int local_rank; /* among the ranks of this machine */
    void *nccl;     /* opened, or NULL */
    char *staging;  /* page-locked; made at the first use */
};

/* Joins the other ranks if a launcher such as mpirun has started more than one. *ret_comm is NULL for a process alone.
   Returns 0, or -1 with one line in `error`. */
int comm_open(struct comm **ret_comm, char *error, size_t error_size);
/* `failed`: ends the other ranks too, for they would wait for this one for ever, and does not return. */
void comm_close(struct comm *comm, bool failed, int status);

/* On the host, while nothing is queued: every rank's `bytes`, in the order of the ranks, into `all`. */
void comm_exchange(struct comm *comm, const void *mine, void *all, size_t bytes);

#endif
