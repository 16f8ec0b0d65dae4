/* Two ranks, each a thread with a device of its own, that exchange two messages a round, crosswise: one begins with the
   first, the other with the second, each on a stream of its own. A message is what NCCL's are: a kernel a side that is
   not over before the other side's has begun. As the program has it, both are under way at once. Were the allocator to
   put one stream after the other, or to wait on the host where a half is not submitted yet, the ranks would wait for
   each other for good. Their cards are full; so every round ends, or runs out of memory. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "program.h"

enum { ROUNDS = 12, HELD_MAX = 64, MIB = 1024 * 1024 };

struct rank {
    struct program program; /* for its random numbers, checks and errors */
    int device;
    CUcontext context;
    CUstream stream[2];
    uint32_t *words; /* what both sides of both messages have reached: [message][side] */
    struct held {
        void *address;
        size_t bytes;
        int stream;
    } held[HELD_MAX];
    unsigned held_count;
};

static void give_up(struct rank *rank, unsigned at)
{
    struct held *held = &rank->held[at];
    extras.owner((uint64_t)(uintptr_t)held->address, held->bytes, 0);
    MUST(&rank->program, (CUresult)extras.free(held->address));
    *held = rank->held[--rank->held_count];
    rank->program.operations++;
}

static void *take(struct rank *rank, int stream, size_t bytes)
{
    void *address = extras.malloc_on(bytes, rank->stream[stream]);
    rank->program.operations++;
    if (address) {
        extras.owner((uint64_t)(uintptr_t)address, bytes, new_owner());
        rank->held[rank->held_count++] = (struct held){address, bytes, stream};
    }
    return address;
}

static CUdeviceptr word(const struct rank *rank, int message, int side)
{
    return (CUdeviceptr)(uintptr_t)(rank->words + message * 2 + side);
}

/* This side's half of a message, which uses memory of its stream. */
static void send(struct rank *rank, int message, uint32_t round)
{
    struct program *p = &rank->program;
    CUstream stream = rank->stream[message];
    size_t bytes = MIB * (size_t)(1 + program_random(p, 8));
    void *buffer = rank->held_count < HELD_MAX ? take(rank, message, bytes) : NULL;
    if (buffer)
        MUST(p, cuMemsetD8Async((CUdeviceptr)(uintptr_t)buffer, 1, 4096, stream));
    MUST(p, cuStreamWriteValue32_v2(stream, word(rank, message, rank->device), round, 0));
    MUST(p, cuStreamWaitValue32_v2(stream, word(rank, message, 1 - rank->device), round, CU_STREAM_WAIT_VALUE_GEQ));
    if (buffer) {
        MUST(p, cuMemsetD8Async((CUdeviceptr)(uintptr_t)buffer, 2, 4096, stream));
        give_up(rank, rank->held_count - 1);
    }
}

static void *run(void *data)
{
    struct rank *rank = data;
    struct program *p = &rank->program;
    MUST(p, cuCtxSetCurrent(rank->context));
    for (int i = 0; i < 2; i++)
        MUST(p, cuStreamCreate(&rank->stream[i], CU_STREAM_NON_BLOCKING));
    for (uint32_t round = 1; round <= ROUNDS && !p->errors; round++) {
        while (rank->held_count < HELD_MAX / 2 && take(rank, (int)program_random(p, 2), 4 * MIB) != NULL) {
        }
        for (unsigned i = program_random(p, 6); i-- > 0 && rank->held_count;)
            give_up(rank, program_random(p, rank->held_count));
        send(rank, rank->device, round);
        send(rank, 1 - rank->device, round);
        for (unsigned i = program_random(p, 4); i-- > 0 && rank->held_count;)
            give_up(rank, program_random(p, rank->held_count));
    }
    while (rank->held_count)
        give_up(rank, 0);
    for (int i = 0; i < 2; i++) {
        MUST(p, cuStreamSynchronize(rank->stream[i]));
        MUST(p, cuStreamDestroy_v2(rank->stream[i]));
    }
    MUST(p, cuCtxSynchronize());
    MUST(p, cuCtxSetCurrent(NULL));
    return NULL;
}

void ranks_run(struct program *p)
{
    struct rank *rank = calloc(2, sizeof *rank);
    pthread_t thread[2];
    uint32_t *words;
    CUcontext context;
    if (!rank)
        abort();
    MUST(p, cuDevicePrimaryCtxRetain(&context, 0));
    MUST(p, cuCtxSetCurrent(context));
    MUST(p, cuMemAllocHost_v2((void **)&words, 4 * sizeof *words));
    for (int i = 0; i < 4; i++)
        words[i] = 0;
    for (int i = 0; i < 2; i++) {
        rank[i].program = (struct program){.seed = p->seed, .kind = KIND_RANKS, .random = p->random + (unsigned)i};
        rank[i].device = i;
        rank[i].words = words;
        MUST(p, cuDevicePrimaryCtxRetain(&rank[i].context, i));
    }
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&thread[i], NULL, run, &rank[i]) != 0)
            abort();
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
        p->errors += rank[i].program.errors;
        p->operations += rank[i].program.operations;
    }
    for (int i = 1; i >= 0; i--) {
        MUST(p, cuCtxSetCurrent(rank[i].context));
        program_trim(p, i);
        MUST(p, cuDevicePrimaryCtxRelease_v2(i));
    }
    MUST(p, cuMemFreeHost(words));
    MUST(p, cuDevicePrimaryCtxRelease_v2(0));
    free(rank);
}
