/* Preloaded, on two simulated devices: peer access, legacy IPC, NCCL's questions about addresses, and contexts that end
   beside frees. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
CUresult nccl_range(CUdeviceptr *, size_t *, CUdeviceptr);
enum { COPY_DEFAULT = 4 };

/* Peer access given before the first allocation, and after it, holds for all memory there is and will be. */
static void peers(void)
{
    void *here = NULL, *there = NULL, *later = NULL;
    EXPECT(cudaSetDevice(0) == cudaSuccess && cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
    EXPECT(cudaMalloc(&here, 4 * MIB) == cudaSuccess);
    EXPECT(cudaSetDevice(1) == cudaSuccess && cudaMalloc(&there, 4 * MIB) == cudaSuccess);
    EXPECT(cudaMemset(there, 7, 4 * MIB) == cudaSuccess);
    EXPECT(cudaSetDevice(0) == cudaSuccess);
    EXPECT(cudaMemcpy(here, there, 4 * MIB, COPY_DEFAULT) == cudaSuccess);
    EXPECT(cudaMemset(there, 8, 4 * MIB) == cudaSuccess);
    EXPECT(cudaSetDevice(1) == cudaSuccess && cudaMalloc(&later, 64 * MIB) == cudaSuccess);
    EXPECT(cudaSetDevice(0) == cudaSuccess && cudaMemset(later, 9, 64 * MIB) == cudaSuccess);
    unsigned char byte = 0;
    EXPECT(cudaMemcpy(&byte, (char *)later + 63 * MIB, 1, cudaMemcpyDeviceToHost) == cudaSuccess && byte == 9);
    EXPECT(statistic(0, "allocs") == 1 && statistic(1, "allocs") == 2);
    EXPECT(cudaFree(later) == cudaSuccess && cudaFree(there) == cudaSuccess && cudaFree(here) == cudaSuccess);
    EXPECT(statistic(0, "frees") == 1 && statistic(1, "frees") == 2);
}

/* Memory of ours can't be given away by a legacy handle, and the user is told so, once. */
static void legacy_ipc(void)
{
    CUipcMemHandle handle;
    CUdeviceptr address;
    EXPECT(cuMemAlloc_v2(&address, MIB) == CUDA_SUCCESS);
    EXPECT(cuIpcGetMemHandle(&handle, address) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuIpcGetMemHandle(&handle, address + 512) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
}

/* NCCL walks buffers mapping by mapping; everybody else is told the block. */
static void addresses(void)
{
    CUdeviceptr address, base;
    size_t bytes;
    EXPECT(cuMemAlloc_v2(&address, 3 * MIB) == CUDA_SUCCESS);
    EXPECT(cuMemGetAddressRange_v2(&base, &bytes, address + 5) == CUDA_SUCCESS && base == address && bytes == 3 * MIB);
    EXPECT(nccl_range(&base, &bytes, address + 5) == CUDA_SUCCESS);
    EXPECT(base <= address && bytes % (2 * MIB) == 0);
    EXPECT(statistic(0, "pinned_bytes") >= 4 * MIB);
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
}

/* Pages that others may remember stay where they are. */
static void pins(void)
{
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    unsigned on = 1, flags = 0;
    int descriptor;
    EXPECT(cuMemAlloc_v2(&address, 64 * MIB) == CUDA_SUCCESS);
    uint64_t before = statistic(0, "pinned_bytes");
    EXPECT(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(address + 10 * MIB)) == CUDA_SUCCESS);
    EXPECT(statistic(0, "pinned_bytes") == before + 2 * MIB);
    EXPECT(cuMemRelease(handle) == CUDA_SUCCESS);
    (void)cuMemGetHandleForAddressRange(&descriptor, address + 20 * MIB, 6 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
        0);
    EXPECT(statistic(0, "pinned_bytes") >= before + 8 * MIB);
    EXPECT(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address) == CUDA_SUCCESS);
    EXPECT(cuCtxGetFlags(&flags) == CUDA_SUCCESS && flags & CU_CTX_SYNC_MEMOPS);
    EXPECT(statistic(0, "pinned_bytes") >= 64 * MIB);
    EXPECT(cuMemFree_v2(address) == CUDA_SUCCESS);
}

static atomic_bool freed_enough;
static atomic_int frees_failed;

static void *free_often(void *user)
{
    bool fine = cudaSetDevice(*(const int *)user) == cudaSuccess;
    while (fine && !atomic_load(&freed_enough)) {
        CUdeviceptr block; /* by the driver's calls: cudaFree asks twice */
        fine = cuMemAlloc_v2(&block, 4096) == CUDA_SUCCESS && cuMemFree_v2(block) == CUDA_SUCCESS;
    }
    if (!fine)
        atomic_fetch_add(&frees_failed, 1);
    return NULL;
}

/* Frees have events recorded in contexts that another thread is about to destroy: in none that is destroyed already. */
static void ends(void)
{
    enum { THREADS = 3, CONTEXTS = 300 };
    int device[THREADS] = {0, 1, 1};
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, free_often, &device[i]) == 0);
    for (int i = 0; i < CONTEXTS; i++) {
        CUcontext context;
        EXPECT(cuCtxCreate_v2(&context, 0, 1) == CUDA_SUCCESS);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); /* until frees wait for it */
        EXPECT(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    }
    atomic_store(&freed_enough, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    EXPECT(atomic_load(&frees_failed) == 0);
}

enum { OWNED = 256 };
static _Atomic(CUdeviceptr) owned[OWNED]; /* blocks of a context that is soon destroyed; 0: taken */
static atomic_int taken;

/* Frees them from a context of the other device. They may have gone with theirs; no other error comes of its end. */
static void *free_owned(void *unused)
{
    bool fine = cudaSetDevice(0) == cudaSuccess;
    for (int i = 0; fine && !atomic_load(&freed_enough); i = (i + 1) % OWNED) {
        CUdeviceptr block = atomic_exchange(&owned[i], 0);
        if (!block) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&taken, 1);
        CUresult result = cuMemFree_v2(block);
        fine = result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE;
    }
    if (!fine)
        atomic_fetch_add(&frees_failed, 1);
    return unused;
}

/* A free waits for the context of its block, which another thread is about to destroy: either that comes after the
   wait, or the free finds the context gone. */
static void owner_ends(void)
{
    enum { THREADS = 6, CONTEXTS = 300, BYTES = 4096, MET = 64 };
    pthread_t thread[THREADS];
    atomic_store(&freed_enough, false);
    EXPECT(cudaSetDevice(1) == cudaSuccess);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&thread[i], NULL, free_owned, NULL) == 0);
    for (int i = 0; i < CONTEXTS && atomic_load(&frees_failed) == 0; i++) {
        CUcontext context;
        CUdeviceptr block;
        EXPECT(cuCtxCreate_v2(&context, 0, 1) == CUDA_SUCCESS);
        atomic_store(&taken, 0);
        for (int k = 0; k < OWNED; k++) {
            EXPECT(cuMemAlloc_v2(&block, BYTES) == CUDA_SUCCESS);
            atomic_store(&owned[k], block);
        }
        while (atomic_load(&taken) < MET && atomic_load(&frees_failed) == 0)
            sched_yield();
        EXPECT(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
    }
    atomic_store(&freed_enough, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    EXPECT(atomic_load(&frees_failed) == 0);
}

int main(int count, char **argument)
{
    (void)argument;
    EXPECT(cuInit(0) == CUDA_SUCCESS);
    if (count == 1) {
        peers();
        legacy_ipc();
        addresses();
        pins();
        ends();
    }
    owner_ends();
    return failures != 0;
}
