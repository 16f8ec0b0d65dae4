#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "turns.h"

struct extras extras;

enum { PINNED = 64 * 1024 };

static const char *const kind_names[KINDS] = {"cuda", "aware", "torch", "ranks", "threads"};

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
    {1, move_life},
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

/* Page-locked memory of the host: the driver's, or the program's own. */
static void make_pinned(struct program *p)
{
    p->registered = p->seed % 5 == 0;
    if (!p->registered)
        MUST(p, cuMemAllocHost_v2(&p->pinned, PINNED));
    else if ((p->pinned = aligned_alloc(4096, PINNED)) == NULL)
        abort();
    else
        MUST(p, cuMemHostRegister_v2(p->pinned, PINNED, 0));
}

static void end_pinned(struct program *p)
{
    if (p->registered) {
        MUST(p, cuMemHostUnregister(p->pinned));
        free(p->pinned);
    } else {
        MUST(p, cuMemFreeHost(p->pinned));
    }
}

static void begin(struct program *p)
{
    for (int i = 0; i < STREAMS; i++)
        p->stream[i].context = -1;
    MUST(p, cuDevicePrimaryCtxRetain(&p->context[0], 0));
    program_enter(p, 0);
    int devices = 0;
    if (cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices > 1 && p->seed % 4 == 1)
        context_begin(p);
    make_pinned(p);
    p->stream[LEGACY].context = 0;
    p->stream[LEGACY].handle = p->seed % 3 ? NULL : CU_STREAM_LEGACY;
    for (int i = 0; i < (p->alone ? 1 : THREADS) && p->kind == KIND_CUDA; i++) {
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

static void wait_for_devices(struct program *p)
{
    CUcontext own, context;
    int devices = 0;
    MUST(p, cuCtxGetCurrent(&own));
    MUST(p, cuDeviceGetCount(&devices));
    for (int i = 0; i < devices; i++) {
        unsigned flags;
        int active = 0;
        MUST(p, cuDevicePrimaryCtxGetState(i, &flags, &active));
        if (!active)
            continue;
        MUST(p, cuDevicePrimaryCtxRetain(&context, i));
        MUST(p, cuCtxSetCurrent(context));
        MUST(p, cuCtxSynchronize());
        MUST(p, cuDevicePrimaryCtxRelease_v2(i));
    }
    MUST(p, cuCtxSetCurrent(own));
}

void program_trim(struct program *p, int device)
{
    enum { TRIES = 1000 }; /* a millisecond each: with less, a busy machine would look like a loss */
    extras.trim(device, 0);
    for (int tries = 0; tries < TRIES && extras.used(device) > extras.check_bytes; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        wait_for_devices(p);
        extras.trim(device, 0);
    }
    uint64_t used = extras.used(device);
    p->lost += used > extras.check_bytes ? used : 0;
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
    end_pinned(p);
    for (int t = 1; t < THREADS && !p->alone; t++) {
        p->thread = t;
        turn(t, end_thread, p);
    }
    p->thread = 0;
    if (p->context[2]) {
        if (!p->alone)
            program_trim(p, 1);
        MUST(p, cuDevicePrimaryCtxRelease_v2(1));
    }
    program_enter(p, 0);
    if (!p->alone)
        program_trim(p, 0);
    MUST(p, cuDevicePrimaryCtxRelease_v2(0));
}

void program_run(struct program *p)
{
    if (!p->alone)
        p->random = p->seed * 0x2545f491 + (uint64_t)p->kind;
    if (p->kind == KIND_RANKS) {
        ranks_run(p);
        return;
    }
    if (p->kind == KIND_THREADS) {
        threads_run(p);
        return;
    }
    begin(p);
    for (unsigned left = 60 + program_random(p, 200); left-- > 0 && !p->errors;) {
        p->thread = p->alone || program_random(p, 3) ? 0 : (int)program_random(p, THREADS);
        turn(p->thread, step, p);
    }
    p->thread = 0;
    program_enter(p, 0);
    end(p);
}
