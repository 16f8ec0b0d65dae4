#include "program.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "turns.h"

struct extras extras;

static const char *const kind_names[KINDS] = {"cuda", "aware", "torch", "ranks"};

/* splitmix64 */
unsigned program_random(struct program *p, unsigned count)
{
    uint64_t z = p->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ z >> 31) % count);
}

bool program_check(struct program *p, CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return true;
    const char *name = NULL;
    cuGetErrorName(result, &name);
    if (p->errors++ < 5)
        fprintf(stderr, "seed %llu, %s, operation %llu: %s: %s\n", (unsigned long long)p->seed, kind_names[p->kind],
            (unsigned long long)p->operations, call, name ? name : "an error without a name");
    return false;
}

int program_device(int context)
{
    return context == 2;
}

void program_enter(struct program *p, int context)
{
    (void)cuCtxSetCurrent(p->context[context]);
}

CUfunction program_kernel(void)
{
    static CUfunction kernel;
    CUlibrary library;
    if (!kernel && cuLibraryLoadData(&library, "code", NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS)
        (void)cuLibraryGetKernel((CUkernel *)(void *)&kernel, library, "touch");
    return kernel;
}

static void make_context(struct program *p)
{
    MUST(p, cuCtxCreate_v2(&p->context[1], 0, 0));
}

/* Its blocks go with it, and everything else that it has. */
static void destroy_context(struct program *p)
{
    for (int i = 0; i < GRAPHS; i++) {
        if (p->graph[i].exec && p->graph[i].context == 1)
            graph_destroy(p, &p->graph[i]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        if (!b->address || b->context != 1)
            continue;
        if (b->graphs)
            return; /* another context's graph has it */
    }
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        if (b->address && b->context == 1 && b->of_pool)
            block_free(p, b);
        if (b->address && b->context == 1) { /* others may still be using it */
            program_enter(p, 0);
            MUST(p, cuCtxSynchronize());
            if (p->context[2]) {
                program_enter(p, 2);
                MUST(p, cuCtxSynchronize());
            }
            extras.owner(b->address, b->bytes, 0);
            b->address = 0;
        }
    }
    for (int i = 0; i < EVENTS; i++) {
        if (p->event[i].handle && p->event[i].context == 1) {
            MUST(p, cuEventDestroy_v2(p->event[i].handle));
            p->event[i].handle = NULL;
        }
    }
    program_enter(p, 1);
    MUST(p, cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        if (p->stream[i].context != 1)
            continue;
        p->stream[i].context = -1;
        for (int b = 0; b < BLOCKS; b++)
            p->block[b].used[i] = 0;
    }
    MUST(p, cuCtxDestroy_v2(p->context[1]));
    p->context[1] = NULL;
    program_enter(p, 0);
}

static void move_contexts(struct program *p)
{
    if (p->kind != KIND_CUDA || program_random(p, 4))
        return;
    if (p->context[1])
        destroy_context(p);
    else if (p->seed % 3 == 0)
        make_context(p);
}

static const struct {
    unsigned weight;
    void (*move)(struct program *p);
} moves[] = {
    {22, move_allocate},
    {20, move_free},
    {26, move_use},
    {18, move_events},
    {6, move_streams},
    {6, move_graphs},
    {4, move_pool},
    {1, move_contexts},
};

static void step(void *data)
{
    struct program *p = data;
    unsigned total = 0;
    for (unsigned i = 0; i < sizeof moves / sizeof *moves; i++)
        total += moves[i].weight;
    unsigned chosen = program_random(p, total);
    unsigned at = 0;
    while (chosen >= moves[at].weight)
        chosen -= moves[at++].weight;
    program_enter(p, 0);
    moves[at].move(p);
    p->operations++;
}

static void begin(struct program *p)
{
    for (int i = 0; i < STREAMS; i++)
        p->stream[i].context = -1;
    MUST(p, cuDevicePrimaryCtxRetain(&p->context[0], 0));
    program_enter(p, 0);
    int devices = 0;
    if (cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices > 1 && p->seed % 4 == 1)
        MUST(p, cuDevicePrimaryCtxRetain(&p->context[2], 1));
    MUST(p, cuMemAllocHost_v2(&p->pinned, 64 * 1024));
    p->stream[LEGACY].context = 0;
    for (int i = 0; i < THREADS && p->kind == KIND_CUDA; i++) {
        p->stream[PER_THREAD + i].context = 0;
        p->stream[PER_THREAD + i].handle = CU_STREAM_PER_THREAD;
    }
    unsigned streams = program_random(p, CREATED_MAX + 1);
    for (unsigned i = 0; i < streams; i++) {
        struct stream *s = &p->stream[i];
        int context = p->context[2] && program_random(p, 3) == 0 ? 2 : 0;
        program_enter(p, context);
        s->blocking = program_random(p, 3) == 0;
        if (MUST(p, cuStreamCreate(&s->handle, s->blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING)))
            s->context = context;
    }
}

static void end_thread(void *data)
{
    struct program *p = data;
    program_enter(p, 0);
    MUST(p, cuCtxSynchronize());
    cuCtxSetCurrent(NULL);
}

/* What a graph held comes back once a thread of the driver has said that it is gone: soon. */
static void trim(int device)
{
    extras.trim(device, 0);
    for (int tries = 0; tries < 200 && extras.used(device); tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        extras.trim(device, 0);
    }
}

static void end(struct program *p)
{
    for (int i = 0; i < GRAPHS; i++) {
        if (p->graph[i].exec)
            graph_destroy(p, &p->graph[i]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (p->block[i].address)
            block_free(p, &p->block[i]);
    }
    for (int i = 0; i < EVENTS; i++) {
        if (p->event[i].handle)
            MUST(p, cuEventDestroy_v2(p->event[i].handle));
    }
    for (int i = 0; i < CREATED_MAX; i++) {
        if (stream_exists(p, i))
            MUST(p, cuStreamDestroy_v2(p->stream[i].handle));
    }
    if (p->context[1])
        MUST(p, cuCtxDestroy_v2(p->context[1]));
    for (int i = 2; i >= 0; i -= 2) {
        if (p->context[i]) {
            program_enter(p, i);
            MUST(p, cuCtxSynchronize());
        }
    }
    MUST(p, cuMemFreeHost(p->pinned));
    for (int t = 1; t < THREADS; t++) {
        p->thread = t;
        turn(t, end_thread, p);
    }
    p->thread = 0;
    if (p->context[2]) {
        trim(1);
        MUST(p, cuDevicePrimaryCtxRelease_v2(1));
    }
    program_enter(p, 0);
    trim(0);
    MUST(p, cuDevicePrimaryCtxRelease_v2(0));
}

void program_run(struct program *p)
{
    p->random = p->seed * 0x2545f491 + (uint64_t)p->kind;
    if (p->kind == KIND_RANKS) {
        ranks_run(p);
        return;
    }
    begin(p);
    for (unsigned left = 60 + program_random(p, 200); left-- > 0 && !p->errors;) {
        p->thread = program_random(p, 3) ? 0 : (int)program_random(p, THREADS);
        turn(p->thread, step, p);
    }
    p->thread = 0;
    program_enter(p, 0);
    end(p);
}
