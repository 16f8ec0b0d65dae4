#include "ranks/collectives.h"

#include <stdio.h>

#ifdef HAVE_MPI
#include <mpi.h>
#endif

#include "device/device.h"
#include "device/tensor.h"
#include "ranks/nccl.h"

#ifdef HAVE_MPI

/* Bytes of each rank's piece that go through the staging at a time. */
enum { CHUNK = 1 << 20 };

static void gather_now(const struct kernel_args *a)
{
    MPI_Allgather(a->p[0], (int)a->n[0], MPI_BYTE, a->p[1], (int)a->n[0], MPI_BYTE, MPI_COMM_WORLD);
}

static float element_wide(const void *from, enum dtype dtype, int64_t i)
{
    return dtype == DTYPE_F32 ? ((const float *)from)[i] : bf16_to_float(((const uint16_t *)from)[i]);
}

/* Sums in the order of the ranks, whatever the library's own reductions do. A training by one process takes the ranks'
   micro-steps one after the other, and so adds in the same order. */
static void reduce_now(const struct kernel_args *a)
{
    const int64_t count = a->n[0], ranks = a->n[1];
    const enum dtype dtype = (enum dtype)a->n[2];
    const size_t piece = (size_t)count * dtype_size(dtype);
    const char *all = a->p[1];
    MPI_Alltoall(a->p[0], (int)piece, MPI_BYTE, a->p[1], (int)piece, MPI_BYTE, MPI_COMM_WORLD);
    for (int64_t i = 0; i < count; i++) {
        float sum = element_wide(all, dtype, i);
        for (int64_t r = 1; r < ranks; r++)
            sum += element_wide(all + (size_t)r * piece, dtype, i);
        if (dtype == DTYPE_F32)
            ((float *)a->p[2])[i] = sum;
        else
            ((uint16_t *)a->p[2])[i] = bf16_from_float(sum);
    }
}

static size_t staging_half(const struct comm *comm)
{
    return (size_t)comm->ranks * CHUNK;
}

int comm_attach(struct comm *comm, struct device *device, char *error, size_t error_size)
{
    if (!comm || !device->rt || !device->arithmetic)
        return 0;
    if (!device->arithmetic->from_host) {
        char reason[128];
        comm->nccl = nccl_open(comm, reason, sizeof reason);
        if (!comm->nccl && comm->rank == 0)
            fprintf(stderr, "segalloc-train: %s; the ranks exchange through host memory\n", reason);
    }
    if (!comm->nccl)
        comm->staging = device_pin(device, 2 * staging_half(comm));
    if (comm->nccl || comm->staging)
        return 0;
    snprintf(error, error_size, "no page-locked memory for what the ranks exchange");
    return -1;
}

void comm_detach(struct comm *comm, struct device *device)
{
    if (!comm)
        return;
    device_unpin(device, comm->staging);
    comm->staging = NULL;
    nccl_close(comm->nccl);
    comm->nccl = NULL;
}

void comm_all_gather(struct comm *comm, struct device *device, void *buffer, size_t bytes)
{
    if (!buffer || !device->rt || !device->arithmetic || device->state != DEVICE_OK)
        return;
    if (comm->nccl) {
        device_fail(device, "NCCL", nccl_all_gather(comm->nccl, buffer, bytes, comm->rank));
        return;
    }
    char *mine = comm->staging, *all = comm->staging + staging_half(comm);
    for (size_t at = 0, size; at < bytes; at += size) {
        size = bytes - at < CHUNK ? bytes - at : CHUNK;
        device_copy_out(device, mine, (char *)buffer + (size_t)comm->rank * bytes + at, size);
        device_call(device, &(struct kernel_args){.p = {mine, all}, .n = {(int64_t)size}}, gather_now);
        for (int r = 0; r < comm->ranks; r++)
            if (r != comm->rank)
                device_copy_in(device, (char *)buffer + (size_t)r * bytes + at, all + (size_t)r * size, size);
    }
}

void comm_reduce_scatter(struct comm *comm, struct device *device, void *buffer, int64_t count, enum dtype dtype)
{
    if (!buffer || !device->rt || !device->arithmetic || device->state != DEVICE_OK)
        return;
    if (comm->nccl) {
        device_fail(device, "NCCL", nccl_reduce_scatter(comm->nccl, buffer, count, dtype, comm->rank));
        return;
    }
    const size_t element = dtype_size(dtype), piece = (size_t)count * element;
    char *out = comm->staging, *in = comm->staging + staging_half(comm);
    for (int64_t at = 0, some; at < count; at += some) {
        some = count - at < (int64_t)(CHUNK / element) ? count - at : (int64_t)(CHUNK / element);
        const size_t size = (size_t)some * element;
        for (int r = 0; r < comm->ranks; r++)
            device_copy_out(device, out + (size_t)r * size, (char *)buffer + (size_t)r * piece + (size_t)at * element,
                size);
        device_call(device, &(struct kernel_args){.p = {out, in, out}, .n = {some, comm->ranks, (int64_t)dtype}},
            reduce_now);
        device_copy_in(device, (char *)buffer + (size_t)comm->rank * piece + (size_t)at * element, out, size);
    }
}

#else

int comm_attach(struct comm *comm, struct device *device, char *error, size_t error_size)
{
    (void)comm, (void)device, (void)error, (void)error_size;
    return 0;
}

void comm_detach(struct comm *comm, struct device *device)
{
    (void)comm, (void)device;
}

void comm_all_gather(struct comm *comm, struct device *device, void *buffer, size_t bytes)
{
    (void)comm, (void)device, (void)buffer, (void)bytes;
}

void comm_reduce_scatter(struct comm *comm, struct device *device, void *buffer, int64_t count, enum dtype dtype)
{
    (void)comm, (void)device, (void)buffer, (void)count, (void)dtype;
}

#endif
