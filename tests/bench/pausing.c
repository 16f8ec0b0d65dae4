/* The cost of a pause beside its copies, and its host memory: figures for docs/experiments/pausing.md, no test.

       pausing MIB [BLOCK_MIB [ROUNDS]]    under `segalloc run --sim SIZE`, of a card that has MIB and some more

   A round does the same twice, with as many bytes in as many blocks. *By hand* a program makes pages by the driver's calls. To pause,
   it copies the blocks to new host memory, which it registers, and unmaps and releases the pages. *Ours* is a tag of memory and
   segalloc_pause(). The order of the two changes from round to round. All that is done by hand is the driver's part of a pause: copies, first
   uses of host memory, and calls for pages. So what ours takes beyond is our own.

   Times are processor time of all threads of the process, because other programs change wall time. Host memory is what of the process is
   anonymous, so without the simulated card. Under `--sim SIZE,drop_mb=1` no byte is copied or touched. A pause then takes just the
   calls and our own work. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "../preload/programs/runtime.h"
#include "../preload/programs/served.h"
#include "cuda_proto.h"

enum { ROUNDS_MOST = 99, ROUNDS = 7 };
#define MIB ((size_t)1 << 20)
static const size_t page_bytes = 2 * MIB, chunk_bytes = 256 * MIB;

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

struct blocks {
    size_t count, bytes; /* of each */
    unsigned char **block;
    cudaStream_t stream;
};

static unsigned char *host_map(size_t bytes)
{
    unsigned char *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(host != MAP_FAILED);
    (void)madvise(host, bytes, MADV_HUGEPAGE);
    return host;
}

/* A virtual machine's host takes memory back that is free for seconds, and its next use then costs more than the copy. So as
   much as is about to be used is used and freed right before. */
static void warm(size_t bytes)
{
    unsigned char *host = host_map(bytes);
    memset(host, 1, bytes);
    munmap(host, bytes);
}

static void fill(const struct blocks *blocks, const unsigned char *first)
{
    for (size_t i = 0; i < blocks->count; i++)
        EXPECT(cudaMemset(first ? (void *)(uintptr_t)(first + i * blocks->bytes) : blocks->block[i], 7,
                   blocks->bytes) == cudaSuccess);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    warm(blocks->count * blocks->bytes);
}

/* Copies the blocks, one behind the other on the device, to new host memory that is registered a chunk ahead. */
static unsigned char *copy_by_hand(const struct blocks *blocks, CUdeviceptr first)
{
    size_t all = blocks->count * blocks->bytes;
    unsigned char *host = host_map(all);
    for (size_t at = 0; at < all; at += chunk_bytes)
        EXPECT(cuMemHostRegister_v2(host + at, all - at < chunk_bytes ? all - at : chunk_bytes, 0) == CUDA_SUCCESS);
    for (size_t at = 0; at < all; at += blocks->bytes)
        EXPECT(cuMemcpyDtoHAsync_v2(host + at, first + at, blocks->bytes, blocks->stream) == CUDA_SUCCESS);
    EXPECT(cudaStreamSynchronize(blocks->stream) == cudaSuccess);
    return host;
}

/* Makes pages by hand, and takes what it copies and gives up. *ret_copies: the first part of it. */
static struct span by_hand(const struct blocks *blocks, struct span *ret_copies)
{
    size_t all = blocks->count * blocks->bytes, pages = all / page_bytes;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle *handle = calloc(pages, sizeof *handle);
    CUdeviceptr first = 0;
    EXPECT(handle && cuMemAddressReserve(&first, all, 0, 0, 0) == CUDA_SUCCESS);
    for (size_t i = 0; i < pages && !failures; i++)
        EXPECT(cuMemCreate(&handle[i], page_bytes, &prop, 0) == CUDA_SUCCESS &&
               cuMemMap(first + i * page_bytes, page_bytes, 0, handle[i], 0) == CUDA_SUCCESS);
    EXPECT(cuMemSetAccess(first, all, &access, 1) == CUDA_SUCCESS);
    fill(blocks, (const unsigned char *)(uintptr_t)first);

    struct span begin = now();
    unsigned char *host = copy_by_hand(blocks, first);
    *ret_copies = since(begin);
    for (size_t at = 0; at < all; at += blocks->bytes)
        EXPECT(cuMemUnmap(first + at, blocks->bytes) == CUDA_SUCCESS);
    for (size_t i = 0; i < pages; i++)
        EXPECT(cuMemRelease(handle[i]) == CUDA_SUCCESS);
    struct span took = since(begin);

    for (size_t at = 0; at < all; at += chunk_bytes)
        EXPECT(cuMemHostUnregister(host + at) == CUDA_SUCCESS);
    munmap(host, all);
    EXPECT(cuMemAddressFree(first, all) == CUDA_SUCCESS);
    free(handle);
    return took;
}

/* Pauses the tag with its contents. It is paused without them at the end, so that the card has room. *ret_host: bytes of the host's
   beyond the contents, as a part of them. */
static struct span by_tag(const struct blocks *blocks, double *ret_host)
{
    double all = (double)(blocks->count * blocks->bytes);
    EXPECT(resume_tag("weights") == 0);
    fill(blocks, NULL);
    double before = anonymous();
    struct span begin = now();
    EXPECT(pause_tag("weights") == 0);
    struct span took = since(begin);
    *ret_host = (anonymous() - before) / all - 1;
    EXPECT(resume_tag("weights") == 0 && discard_tag("weights") == 0);
    return took;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A line of figures: the median, the least and the most. */
static void say(const char *what, double *of, size_t count, double scale, const char *unit)
{
    qsort(of, count, sizeof *of, compare);
    printf("%-44s %8.3f %s, from %.3f to %.3f\n", what, of[count / 2] * scale, unit, of[0] * scale,
        of[count - 1] * scale);
}

static void play(const struct blocks *blocks, size_t rounds)
{
    static double copies[ROUNDS_MOST], hand[ROUNDS_MOST], ours[ROUNDS_MOST], more[ROUNDS_MOST],
        copies_more[ROUNDS_MOST], wall[ROUNDS_MOST], host[ROUNDS_MOST];
    for (size_t i = 0; i < rounds && !failures; i++) {
        struct span copied, handed, paused = {0};
        if (i % 2)
            paused = by_tag(blocks, &host[i]);
        handed = by_hand(blocks, &copied);
        if (i % 2 == 0)
            paused = by_tag(blocks, &host[i]);
        copies[i] = copied.processor;
        hand[i] = handed.processor;
        ours[i] = paused.processor;
        more[i] = paused.processor / handed.processor - 1;
        copies_more[i] = (paused.processor - handed.processor) / copied.processor;
        wall[i] = paused.wall / handed.wall - 1;
    }
    printf("%zu MiB in %zu blocks, %zu rounds: the median, the least and the most. Processor time.\n",
        blocks->count * blocks->bytes / MIB, blocks->count, rounds);
    say("copies", copies, rounds, 1, "s");
    say("copies and pages by hand", hand, rounds, 1, "s");
    say("pause", ours, rounds, 1, "s");
    say("pause, more than by hand", more, rounds, 100, "%");
    say("the same, as a part of the copies", copies_more, rounds, 100, "%");
    say("pause, more than by hand, wall time", wall, rounds, 100, "%");
    say("host memory beyond the contents", host, rounds, 100, "%");
}

int main(int argc, char **argv)
{
    struct blocks blocks = {.bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 64) * MIB};
    size_t rounds = argc > 3 ? (size_t)atoi(argv[3]) : ROUNDS;
    blocks.count = (size_t)atoi(argc > 1 ? argv[1] : "1024") * MIB / blocks.bytes;
    blocks.block = calloc(blocks.count, sizeof *blocks.block);
    find("segalloc_tag_push", &push);
    find("segalloc_tag_pop", &pop);
    find("segalloc_pause", &pause_tag);
    find("segalloc_discard", &discard_tag);
    find("segalloc_resume", &resume_tag);
    if (failures || !blocks.block || rounds < 1 || rounds > ROUNDS_MOST)
        return 1;
    EXPECT(cudaStreamCreateWithFlags(&blocks.stream, cudaStreamNonBlocking) == cudaSuccess && push("weights", 0) == 0);
    for (size_t i = 0; i < blocks.count; i++)
        EXPECT(cudaMalloc((void **)&blocks.block[i], blocks.bytes) == cudaSuccess);
    EXPECT(pop() == 0 && discard_tag("weights") == 0);
    play(&blocks, rounds);
    free(blocks.block);
    return failures != 0;
}
