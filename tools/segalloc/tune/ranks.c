#include "ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open MPI's ABI (ompi/include/mpi.h): handles are addresses of objects in the library. */
#define LIBRARY "libmpi.so.40"
enum { THREAD_FUNNELED = 1, SHARED_AT_ONCE = 1 << 28 };

struct sg_mpi {
    void *library, *world, *byte;
    int (*init_thread)(int *argc, char ***argv, int required, int *ret_provided);
    int (*comm_rank)(void *comm, int *ret_rank);
    int (*comm_size)(void *comm, int *ret_size);
    int (*bcast)(void *buffer, int count, void *type, int root, void *comm);
    int (*finalize)(void);
};

static struct sg_mpi the_mpi;

/* Looks all symbols up. False: one is missing. */
static bool find_symbols(struct sg_mpi *mpi)
{
    const struct {
        const char *name;
        void *place;
    } wanted[] = {
        {"ompi_mpi_comm_world", &mpi->world},
        {"ompi_mpi_byte", &mpi->byte},
        {"MPI_Init_thread", &mpi->init_thread},
        {"MPI_Comm_rank", &mpi->comm_rank},
        {"MPI_Comm_size", &mpi->comm_size},
        {"MPI_Bcast", &mpi->bcast},
        {"MPI_Finalize", &mpi->finalize},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *symbol = dlsym(mpi->library, wanted[i].name);
        if (!symbol)
            return false;
        memcpy(wanted[i].place, &symbol, sizeof symbol);
    }
    return true;
}

int sg_tune_ranks_open(struct sg_tune_ranks *ret, char *error)
{
    const char *launched = getenv("OMPI_COMM_WORLD_SIZE");
    struct sg_mpi *mpi = &the_mpi;
    int provided;
    *ret = (struct sg_tune_ranks){.count = 1};
    if (!launched || atoi(launched) < 2)
        return 0;
    mpi->library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!mpi->library || !find_symbols(mpi)) {
        snprintf(error, SG_TUNE_RANKS_ERROR,
            "mpirun has started %s ranks, and Open MPI's " LIBRARY
            " can't be loaded here: install it, or start one process",
            launched);
        return -ENOENT;
    }
    if (mpi->init_thread(NULL, NULL, THREAD_FUNNELED, &provided) != 0 || mpi->comm_rank(mpi->world, &ret->rank) != 0 ||
        mpi->comm_size(mpi->world, &ret->count) != 0) {
        snprintf(error, SG_TUNE_RANKS_ERROR, "Open MPI does not start on this machine");
        return -EIO;
    }
    ret->mpi = mpi;
    return 0;
}

void sg_tune_ranks_close(struct sg_tune_ranks *ranks)
{
    if (ranks->mpi)
        ranks->mpi->finalize();
    ranks->mpi = NULL;
}

void sg_tune_ranks_share(const struct sg_tune_ranks *ranks, int from, void *data, size_t bytes)
{
    if (!ranks->mpi)
        return;
    for (size_t at = 0; at < bytes; at += SHARED_AT_ONCE) {
        size_t piece = bytes - at < SHARED_AT_ONCE ? bytes - at : SHARED_AT_ONCE;
        ranks->mpi->bcast((char *)data + at, (int)piece, ranks->mpi->byte, from, ranks->mpi->world);
    }
}

unsigned sg_tune_ranks_cores(void)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    return online < 1 ? 1 : (unsigned)online;
}
