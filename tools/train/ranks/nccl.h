/* The collectives of NCCL, found by dlopen. All calls in stream order, on the default stream, in place. */
#ifndef TRAIN_NCCL_H
#define TRAIN_NCCL_H

#include <stddef.h>
#include <stdint.h>

#include "backend/arithmetic.h"

struct comm;
struct nccl;

/* NULL with one line in `reason` where the library is missing or the ranks cannot use it (two on one GPU, say): the
   same on every rank. */
struct nccl *nccl_open(struct comm *comm, char *reason, size_t reason_size);
void nccl_close(struct nccl *nccl);

/* NULL, or what is wrong. */
const char *nccl_all_gather(struct nccl *nccl, void *buffer, size_t bytes, int rank);
const char *nccl_reduce_scatter(struct nccl *nccl, void *buffer, int64_t count, enum dtype dtype, int rank);

#endif
