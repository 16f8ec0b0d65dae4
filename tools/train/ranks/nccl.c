#include "ranks/nccl.h"
#include "ranks/comm.h"
#include "device/tensor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of NCCL's ABI (nccl.h of 2.x): the unique identifier's size, and the numbers of data types and of the sum. */
enum { ID_BYTES = 128, NCCL_UINT8 = 1, NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9, NCCL_SUM = 0 };

struct unique_id {
    char bytes[ID_BYTES];
};

#define FUNCTIONS(F)                                                                                                   \
    F(ncclGetUniqueId, int, (struct unique_id *id))                                                                    \
    F(ncclCommInitRank, int, (void **comm, int ranks, struct unique_id id, int rank))                                  \
    F(ncclCommDestroy, int, (void *comm))                                                                              \
    F(ncclAllGather, int, (const void *from, void *to, size_t count, int type, void *comm, void *stream))              \
    F(ncclReduceScatter, int, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))  \
    F(ncclGetErrorString, const char *, (int result))

struct nccl {
#define FIELD(name, result, parameters) result(*name) parameters;
    FUNCTIONS(FIELD)
#undef FIELD
    void *library, *comm;
};

static bool nccl_load(struct nccl *nccl)
{
    nccl->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    bool whole = nccl->library != NULL;
    void *symbol;
#define FIND(name, result, parameters)                                                                                 \
    symbol = whole ? dlsym(nccl->library, #name) : NULL;                                                               \
    memcpy(&nccl->name, &symbol, sizeof symbol);                                                                       \
    whole = whole && symbol;
    FUNCTIONS(FIND)
#undef FIND
    return whole;
}

/* All ranks take the same way: what one lacks, the others do without. */
static bool all_agree(struct comm *comm, bool good)
{
    bool *others = calloc((size_t)comm->ranks, sizeof *others), all = true;
    if (!others)
        abort();
    comm_exchange(comm, &good, others, sizeof good);
    for (int r = 0; r < comm->ranks; r++)
        all = all && others[r];
    free(others);
    return all;
}

struct nccl *nccl_open(struct comm *comm, char *reason, size_t reason_size)
{
    struct nccl *nccl = calloc(1, sizeof *nccl);
    struct unique_id id = {{0}}, *ids = calloc((size_t)comm->ranks, sizeof *ids);
    if (!nccl || !ids)
        abort();
    bool loaded = nccl_load(nccl);
    int rc = loaded && comm->rank == 0 ? nccl->ncclGetUniqueId(&id) : 0;
    snprintf(reason, reason_size, "no usable libnccl.so.2 on every rank");
    if (all_agree(comm, loaded && !rc)) {
        comm_exchange(comm, &id, ids, sizeof id);
        rc = nccl->ncclCommInitRank(&nccl->comm, comm->ranks, ids[0], comm->rank);
        if (rc)
            snprintf(reason, reason_size, "NCCL: %s", nccl->ncclGetErrorString(rc));
        if (all_agree(comm, !rc)) {
            free(ids);
            return nccl;
        }
        if (!rc)
            nccl->ncclCommDestroy(nccl->comm);
    }
    free(ids);
    free(nccl); /* the library stays: its threads may outlive us */
    return NULL;
}

void nccl_close(struct nccl *nccl)
{
    if (!nccl)
        return;
    nccl->ncclCommDestroy(nccl->comm);
    free(nccl);
}

const char *nccl_all_gather(struct nccl *nccl, void *buffer, size_t bytes, int rank)
{
    int rc = nccl->ncclAllGather((char *)buffer + (size_t)rank * bytes, buffer, bytes, NCCL_UINT8, nccl->comm, NULL);
    return rc ? nccl->ncclGetErrorString(rc) : NULL;
}

const char *nccl_reduce_scatter(struct nccl *nccl, void *buffer, int64_t count, enum dtype dtype, int rank)
{
    char *mine = (char *)buffer + (size_t)rank * (size_t)count * dtype_size(dtype);
    int rc = nccl->ncclReduceScatter(buffer, mine, (size_t)count, dtype == DTYPE_F32 ? NCCL_FLOAT32 : NCCL_BFLOAT16,
                                     NCCL_SUM, nccl->comm, NULL);
    return rc ? nccl->ncclGetErrorString(rc) : NULL;
}
