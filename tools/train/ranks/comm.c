#include "ranks/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_MPI
#include <mpi.h>
#endif

/* Ranks, as Open MPI, and MPICH and its kin, have them in the environment of a process that they start. */
static int launched_ranks(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return atoi(value);
    }
    return 1;
}

#ifdef HAVE_MPI

static struct comm the_comm;

int comm_open(struct comm **ret_comm, char *error, size_t error_size)
{
    struct comm *comm = &the_comm;
    *ret_comm = NULL;
    if (launched_ranks() < 2)
        return 0;
    int provided;
    /* Calls come from the thread that a stream's host functions run on, and from the main one while nothing is
       queued. */
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
        provided < MPI_THREAD_SERIALIZED) {
        snprintf(error, error_size, "this MPI cannot be called from several threads; Open MPI and MPICH can");
        return -1;
    }
    MPI_Comm node;
    MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &comm->ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &comm->local_rank);
    MPI_Comm_free(&node);
    *ret_comm = comm;
    return 0;
}

void comm_close(struct comm *comm, bool failed, int status)
{
    if (!comm)
        return;
    fflush(NULL);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
}

void comm_exchange(struct comm *comm, const void *mine, void *all, size_t bytes)
{
    (void)comm;
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

#else

int comm_open(struct comm **ret_comm, char *error, size_t error_size)
{
    *ret_comm = NULL;
    if (launched_ranks() < 2)
        return 0;
    snprintf(error, error_size, "%d ranks were started, and this program was built without MPI; build it where Open "
             "MPI is (Debian: libopenmpi-dev)", launched_ranks());
    return -1;
}

void comm_close(struct comm *comm, bool failed, int status)
{
    (void)comm, (void)failed, (void)status;
}

void comm_exchange(struct comm *comm, const void *mine, void *all, size_t bytes)
{
    (void)comm;
    memcpy(all, mine, bytes);
}

#endif
