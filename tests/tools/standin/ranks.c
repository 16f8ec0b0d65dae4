/* Two processes that talk by NCCL's functions, as PyTorch's ranks do; in the place of libtorch_cuda.so too. Each rank
   checks what it was told. With RANKS_DIE in the environment rank 1 ends before it has said anything. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INT32 = 2, INT64 = 4, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9, SUM = 0, MAX = 2, AVERAGE = 4, COUNT = 8 };

struct unique_id {
    char bytes[128];
};

int ncclCommInitRank(void **ret, int ranks, struct unique_id id, int rank);
int ncclCommSplit(void *from, int colour, int key, void **ret, void *config);
int ncclCommCount(void *communicator, int *ret);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclBroadcast(const void *, void *, size_t, int, int, void *, void *);
int ncclAllGather(const void *, void *, size_t, int, void *, void *);
int ncclReduceScatter(const void *, void *, size_t, int, int, void *, void *);
int ncclSend(const void *, size_t, int, int, void *, void *);
int ncclRecv(void *, size_t, int, int, void *, void *);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int torch_test(void);

static struct {
    int (*init)(unsigned), (*retain)(void **, int), (*current)(void *), (*allocate)(uintptr_t *, size_t),
        (*synchronize)(void);
} driver;

static int wrong;

static void expect(int rank, const char *what, int64_t got, int64_t wanted)
{
    if (got != wanted) {
        printf("rank %d, %s: %lld instead of %lld\n", rank, what, (long long)got, (long long)wanted);
        wrong++;
    }
}

static void *function(const char *name)
{
    return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name);
}

/* Memory of the simulated device lies at its addresses. */
static void *device_memory(void)
{
    uintptr_t address = 0;
    void *context = NULL;
    *(void **)&driver.init = function("cuInit");
    *(void **)&driver.retain = function("cuDevicePrimaryCtxRetain");
    *(void **)&driver.current = function("cuCtxSetCurrent");
    *(void **)&driver.allocate = function("cuMemAlloc_v2");
    *(void **)&driver.synchronize = function("cuCtxSynchronize");
    if (driver.init(0) || driver.retain(&context, 0) || driver.current(context) || driver.allocate(&address, 1 << 16))
        exit(3);
    return (void *)address;
}

static void collectives(int rank, void *world)
{
    char *memory = device_memory();
    int64_t *a = (int64_t *)memory, *b = (int64_t *)(memory + 4096);
    uint16_t *half = (uint16_t *)(memory + 8192), *brain = (uint16_t *)(memory + 8448);
    float *mean = (float *)(memory + 8704);
    for (int i = 0; i < COUNT; i++) {
        a[i] = 100 * rank - i;
        half[i] = rank ? 0x3c00 : 0xc100;  /* 1, -2.5 */
        brain[i] = rank ? 0x3f80 : 0x4049; /* 1, 3.140625 */
        mean[i] = (float)(rank + 1);
    }
    ncclAllReduce(a, b, COUNT, INT64, SUM, world, NULL);
    ncclAllReduce(a, b + COUNT, COUNT, INT64, MAX, world, NULL);
    ncclAllReduce(half, half, COUNT, FLOAT16, SUM, world, NULL);
    ncclAllReduce(brain, brain, COUNT, BFLOAT16, SUM, world, NULL);
    ncclAllReduce(mean, mean, COUNT, FLOAT32, AVERAGE, world, NULL);
    ncclAllGather(a, b + 2 * COUNT, COUNT, INT64, world, NULL);
    ncclReduceScatter(a, b + 4 * COUNT, COUNT / 2, INT64, SUM, world, NULL);
    ncclBroadcast(a, b + 5 * COUNT, COUNT, INT64, 1, world, NULL);
    ncclGroupStart();
    ncclRecv(b + 6 * COUNT, COUNT, INT64, 1 - rank, world, NULL); /* both begin with receiving */
    ncclSend(a, COUNT, INT64, 1 - rank, world, NULL);
    ncclGroupEnd();
    for (int i = 0; i < 40; i++) { /* more than are on their way at once */
        if (rank == 0)
            ncclSend(a + i % COUNT, 1, INT64, 1, world, NULL);
        else
            ncclRecv(b + 7 * COUNT + i, 1, INT64, 0, world, NULL);
    }
    driver.synchronize();
    for (int i = 0; i < COUNT; i++) {
        expect(rank, "a sum", b[i], 100 - 2 * i);
        expect(rank, "a maximum", b[COUNT + i], 100 - i);
        expect(rank, "a sum of halves", half[i], 0xbe00); /* -1.5 */
        expect(rank, "a sum of bfloat16", brain[i], 0x4084); /* 4.140625, to even */
        expect(rank, "an average", (int64_t)(2 * mean[i]), 3);
        expect(rank, "gathered from 0", b[2 * COUNT + i], -i);
        expect(rank, "gathered from 1", b[3 * COUNT + i], 100 - i);
        expect(rank, "broadcast", b[5 * COUNT + i], 100 - i);
        expect(rank, "received", b[6 * COUNT + i], 100 * (1 - rank) - i);
    }
    for (int i = 0; i < COUNT / 2; i++)
        expect(rank, "a scattered sum", b[4 * COUNT + i], 100 - 2 * (rank * COUNT / 2 + i));
    for (int i = 0; rank == 1 && i < 40; i++)
        expect(rank, "the next message", b[7 * COUNT + i], -(i % COUNT));
    void *alone = NULL, *turned = NULL;
    int count = 0;
    ncclCommSplit(world, rank, 0, &alone, NULL);
    ncclCommCount(alone, &count);
    expect(rank, "ranks of its own colour", count, 1);
    ncclCommSplit(world, 7, -rank, &turned, NULL); /* in the other order */
    ncclBroadcast(a, b, COUNT, INT64, 0, turned, NULL);
    driver.synchronize();
    expect(rank, "broadcast from the first of the turned", b[0], 100);
}

/* The other rank has gone without a word: nobody waits for it for ever. */
static void forsaken(int rank, void *world)
{
    int64_t *memory = device_memory();
    *memory = 5;
    for (int round = 0; round < 3; round++) /* the next one does not wait for one that failed */
        ncclAllReduce(memory, memory, 1, INT64, SUM, world, NULL);
    driver.synchronize();
    expect(rank, "what nobody added to", *memory, 5);
}

static int rank_main(int rank, const struct unique_id *id)
{
    void *world = NULL;
    if (ncclCommInitRank(&world, 2, *id, rank) != 0)
        return 3;
    if (!getenv("RANKS_DIE"))
        collectives(rank, world);
    else if (rank == 1)
        _exit(0);
    else
        forsaken(rank, world);
    return wrong != 0;
}

__attribute__((visibility("default"))) int torch_test(void)
{
    struct unique_id id = {{0}};
    int status = 0;
    snprintf(id.bytes, sizeof id.bytes, "%ld", (long)getpid());
    pid_t child = fork();
    if (child == 0) {
        int result = rank_main(1, &id);
        fflush(NULL);
        _exit(result);
    }
    if (getenv("RANKS_DIE")) /* it must not stay a zombie, which looks alive */
        signal(SIGCHLD, SIG_IGN);
    int result = rank_main(0, &id);
    if (!getenv("RANKS_DIE") && (waitpid(child, &status, 0) != child || status != 0))
        result = 1;
    printf("wrong %d\n", result);
    return result;
}
