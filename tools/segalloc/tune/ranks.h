/* The ranks of one tuner that mpirun has started on several machines. Open MPI is loaded where there are ranks, so that
   the tool runs without it. */
#ifndef SG_TUNE_RANKS_H
#define SG_TUNE_RANKS_H

#include <stddef.h>

enum { SG_TUNE_RANKS_ERROR = 320 };

struct sg_tune_ranks {
    int rank, count; /* 0 of 1: alone */
    struct sg_mpi *mpi;
};

/* Joins the other ranks. 0, or a negative errno with a line in error[SG_TUNE_RANKS_ERROR]. */
int sg_tune_ranks_open(struct sg_tune_ranks *ret, char *error);

/* Leaves them; each rank has to. */
void sg_tune_ranks_close(struct sg_tune_ranks *ranks);

/* Gives the bytes that rank `from` has to all. Each rank calls it with as many bytes. */
void sg_tune_ranks_share(const struct sg_tune_ranks *ranks, int from, void *data, size_t bytes);

/* Cores that this process may run on. */
unsigned sg_tune_ranks_cores(void);

#endif
