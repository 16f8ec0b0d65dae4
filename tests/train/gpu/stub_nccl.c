/* NCCL's collectives by MPI, in the order of the stand-in runtime's stream; only in place, as the trainer calls
   them. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { UINT8 = 1, FLOAT32 = 7, INVALID = 4 };

struct unique_id {
    char bytes[128];
};

struct call {
    void *buffer;
    size_t count;
    int rank, ranks, reduces;
};

static struct {
    int rank, ranks;
} world;

static void run_call(void *argument)
{
    struct call *call = argument;
    if (!call->reduces) {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, call->buffer, (int)call->count, MPI_BYTE, MPI_COMM_WORLD);
    } else {
        float *sum = malloc(call->count * sizeof *sum);
        if (!sum)
            abort();
        MPI_Reduce_scatter_block(call->buffer, sum, (int)call->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        memcpy((float *)call->buffer + (size_t)call->rank * call->count, sum, call->count * sizeof *sum);
        free(sum);
    }
    free(call);
}

static int enqueue(void *buffer, size_t count, int reduces)
{
    static int (*queue)(void *, void (*)(void *), void *);
    if (!queue) {
        void *symbol = dlsym(dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD), "cudaLaunchHostFunc");
        memcpy(&queue, &symbol, sizeof symbol);
    }
    struct call *call = malloc(sizeof *call);
    if (!call)
        abort();
    *call = (struct call){buffer, count, world.rank, world.ranks, reduces};
    return queue(NULL, run_call, call);
}

EXPORT int ncclGetUniqueId(struct unique_id *id);
int ncclGetUniqueId(struct unique_id *id)
{
    strcpy(id->bytes, "one for all");
    return 0;
}

EXPORT int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank);
int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank)
{
    if (strcmp(id.bytes, "one for all") || rank >= ranks)
        return INVALID;
    world.rank = rank;
    world.ranks = ranks;
    *comm = &world;
    if (rank == 0)
        fputs("NCCL is in use\n", stderr);
    return 0;
}

EXPORT int ncclCommDestroy(void *comm);
int ncclCommDestroy(void *comm)
{
    return comm == &world ? 0 : INVALID;
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream);
int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
    if (type != UINT8 || stream || comm != &world || (const char *)from != (char *)to + (size_t)world.rank * count)
        return INVALID;
    return enqueue(to, count, 0);
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream)
{
    if (type != FLOAT32 || op || stream || comm != &world ||
        (char *)to != (const char *)from + (size_t)world.rank * count * sizeof(float))
        return INVALID;
    return enqueue((void *)(uintptr_t)from, count, 1);
}

EXPORT const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result)
{
    return result == INVALID ? "invalid argument" : "no error";
}
