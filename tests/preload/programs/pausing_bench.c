/* How long a pause takes beside the copies alone, and how much host memory: figures for docs/experiments/pausing.md, no test.

       preload_pausing_bench MIB [BLOCK_MIB]    under `segalloc run --sim SIZE`

   Each round copies the tag's memory to new host memory, block by block, by the program's own cuMemcpyDtoHAsync(). Then the tag is paused
   without contents, which are the driver's calls for pages alone, and resumed. Then it is paused with contents, and resumed. Times are
   processor time of all threads of the process, and wall time beside it: another program on the machine changes the latter. Host memory is
   what of the process is anonymous, so without the simulated card. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "cuda_proto.h"
#include "runtime.h"
#include "served.h"

enum { ROUNDS = 5 };
#define MIB ((size_t)1 << 20)

struct span {
    double processor, wall; /* s */
};

static double clock_s(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct span now(void)
{
    return (struct span){clock_s(CLOCK_PROCESS_CPUTIME_ID), clock_s(CLOCK_MONOTONIC)};
}

static struct span since(struct span begin)
{
    struct span end = now();
    return (struct span){end.processor - begin.processor, end.wall - begin.wall};
}

static struct span ordered(int (*order)(const char *tag))
{
    struct span begin = now();
    EXPECT(order("weights") == 0);
    return since(begin);
}

/* Anonymous memory of the process, bytes. */
static double anonymous(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %lu", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return (double)kib * 1024;
}

static int (*push)(const char *tag, unsigned flags), (*pop)(void), (*pause_tag)(const char *tag),
    (*discard_tag)(const char *tag), (*resume_tag)(const char *tag);

/* A virtual machine's host takes memory back that is free for seconds, and its next use then costs more than the copy. So as
   much as is about to be used is used and freed right before. */
static void warm(size_t bytes)
{
    unsigned char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(host != MAP_FAILED);
    (void)madvise(host, bytes, MADV_HUGEPAGE);
    memset(host, 1, bytes);
    munmap(host, bytes);
}

/* Copies alone to memory that is as new as that of a pause. */
static struct span copies_alone(unsigned char **block, size_t count, size_t bytes, cudaStream_t stream)
{
    struct span begin = now();
    unsigned char *host = mmap(NULL, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(host != MAP_FAILED);
    (void)madvise(host, count * bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < count; i++)
        EXPECT(cuMemcpyDtoHAsync_v2(host + i * bytes, (CUdeviceptr)(uintptr_t)block[i], bytes, stream) == CUDA_SUCCESS);
    EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
    struct span took = since(begin);
    munmap(host, count * bytes);
    return took;
}

static void round_trip(unsigned char **block, size_t count, size_t bytes, cudaStream_t stream)
{
    double all = (double)(count * bytes), before = anonymous();
    warm(count * bytes);
    struct span copies = copies_alone(block, count, bytes, stream), pages = ordered(discard_tag);
    EXPECT(resume_tag("weights") == 0);
    for (size_t i = 0; i < count; i++)
        EXPECT(cudaMemset(block[i], 7, bytes) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    warm(count * bytes);
    struct span paused = ordered(pause_tag);
    double host = anonymous() - before;
    struct span resumed = ordered(resume_tag);
    printf("%zu MiB in %zu blocks. Processor time: copies %.3f s (%.2f GiB/s), pages %.3f s, pause %.3f s (%+.1f %% of "
           "both), "
           "resume %.3f s. Wall: %.2f, %.2f, %.2f, %.2f s. Host memory: contents %+.3f %%\n",
        count * bytes / MIB, count, copies.processor, all / copies.processor / (1 << 30), pages.processor,
        paused.processor, (paused.processor / (copies.processor + pages.processor) - 1) * 100, resumed.processor,
        copies.wall, pages.wall, paused.wall, resumed.wall, (host / all - 1) * 100);
}

int main(int argc, char **argv)
{
    size_t bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 64) * MIB,
           count = (size_t)atoi(argc > 1 ? argv[1] : "1024") * MIB / bytes;
    unsigned char **block = calloc(count, sizeof *block);
    cudaStream_t stream;
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_discard", &discard_tag);
    find("segalloc_resume", &resume_tag);
    if (failures || !block)
        return 1;
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess && push("weights", 0) == 0);
    for (size_t i = 0; i < count; i++)
        EXPECT(cudaMalloc((void **)&block[i], bytes) == cudaSuccess && cudaMemset(block[i], 7, bytes) == cudaSuccess);
    EXPECT(pop() == 0 && cudaDeviceSynchronize() == cudaSuccess);
    for (int round = 0; round < ROUNDS && !failures; round++)
        round_trip(block, count, bytes, stream);
    free(block);
    return failures != 0;
}
