/* Preloaded: the memory of a process is checkpointed and restored, as by cuda-checkpoint. A trim before it leaves just what is in use to
   save, and a paused tag is none of it. */
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

#define MIB ((size_t)1 << 20)

static int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause_tag)(const char *tag),
    (*resume_tag)(const char *tag);
static size_t (*trim)(int device, size_t keep);
static uint64_t (*used)(int device); /* bytes that the process has of the card; cuMemGetInfo is the library's */

static unsigned char *filled(size_t bytes, int value)
{
    void *address = NULL;
    EXPECT(cudaMalloc(&address, bytes) == cudaSuccess && cudaMemset(address, value, bytes) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    return address;
}

static bool all_are(const void *address, size_t bytes, int value)
{
    unsigned char *host = malloc(bytes);
    bool right = host && cudaMemcpy(host, address, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (size_t i = 0; right && i < bytes; i++)
        right = host[i] == value;
    free(host);
    return right;
}

/* Returns the bytes that a checkpoint takes from the device. */
static uint64_t checkpoint(void)
{
    uint64_t before = used(0);
    EXPECT(cuCheckpointProcessLock(getpid(), NULL) == CUDA_SUCCESS);
    EXPECT(cuCheckpointProcessCheckpoint(getpid(), NULL) == CUDA_SUCCESS);
    uint64_t saved = before - used(0);
    EXPECT(cuCheckpointProcessRestore(getpid(), NULL) == CUDA_SUCCESS);
    EXPECT(cuCheckpointProcessUnlock(getpid(), NULL) == CUDA_SUCCESS);
    EXPECT(used(0) == before);
    return saved;
}

int main(void)
{
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_resume", &resume_tag);
    find("segalloc_trim", &trim);
    find("segalloc_sim_used", &used);
    if (failures)
        return 1;
    unsigned char *kept = filled(24 * MIB, 3), *gone = filled(120 * MIB, 4);
    EXPECT(push("weights", 0) == 0);
    unsigned char *weights = filled(64 * MIB, 5);
    EXPECT(pop() == 0 && cudaFree(gone) == cudaSuccess);
    uint64_t untrimmed = checkpoint();
    uint64_t freed = trim(0, 0);
    uint64_t trimmed = checkpoint();
    EXPECT(freed >= 118 * MIB && trimmed == untrimmed - freed);
    EXPECT(all_are(kept, 24 * MIB, 3) && all_are(weights, 64 * MIB, 5));
    EXPECT(pause_tag("weights") == 0 && checkpoint() <= trimmed - 64 * MIB && resume_tag("weights") == 0);
    EXPECT(all_are(kept, 24 * MIB, 3) && all_are(weights, 64 * MIB, 5));
    EXPECT(cudaFree(kept) == cudaSuccess && cudaFree(weights) == cudaSuccess);
    return failures != 0;
}
