/* What becomes of a program's contexts, and of its process. */
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

int cudaFree(void *address);

void context_begin(struct program *p)
{
    int there = 0, back = 0;
    MUST(p, cuDevicePrimaryCtxRetain(&p->context[2], 1));
    p->peers = p->seed % 8 == 1 && !p->alone && cuDeviceCanAccessPeer(&there, 0, 1) == CUDA_SUCCESS &&
        cuDeviceCanAccessPeer(&back, 1, 0) == CUDA_SUCCESS && there && back;
    if (!p->peers)
        return;
    program_enter(p, 0);
    MUST(p, cuCtxEnablePeerAccess(p->context[2], 0));
    program_enter(p, 2);
    MUST(p, cuCtxEnablePeerAccess(p->context[0], 0));
    program_enter(p, 0);
}

void context_make_created(struct program *p)
{
    MUST(p, cuCtxCreate_v2(&p->context[1], 0, 0));
}

/* Whether a graph of another context works on its blocks. */
static bool is_in_use(const struct program *p, int context)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (p->block[i].address && p->block[i].context == context && p->block[i].graphs)
            return true;
    }
    return false;
}

/* Its blocks go with it; others may still be using them. */
static void drop_blocks(struct program *p, int context)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        if (b->address && b->context == context && b->of_pool)
            block_free(p, b);
    }
    for (int other = 0; other < CONTEXTS; other++) {
        if (other == context || !p->context[other])
            continue;
        program_enter(p, other);
        MUST(p, cuCtxSynchronize());
    }
    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &p->block[i];
        if (!b->address || b->context != context)
            continue;
        extras.owner(b->address, b->bytes, 0);
        b->address = 0;
    }
}

/* Work that it has queued is over when it has ended, so is all that it had. */
static void drop_streams_and_events(struct program *p, int context)
{
    for (int i = 0; i < EVENTS; i++) {
        struct event *event = &p->event[i];
        if (!event->handle || event->context != context)
            continue;
        if (program_random(p, 2))
            MUST(p, cuEventDestroy_v2(event->handle));
        event->handle = NULL;
    }
    program_enter(p, context);
    if (program_random(p, 2))
        MUST(p, cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++) {
        if (p->stream[i].context != context)
            continue;
        p->stream[i].context = -1;
        for (int b = 0; b < BLOCKS; b++) {
            p->block[b].used[i] = 0;
            p->block[b].recorded &= ~(1u << i);
        }
    }
}

/* The created one is destroyed, the second device's is reset. */
static void end_context(struct program *p, int context)
{
    for (int i = 0; i < GRAPHS; i++) {
        if (p->graph[i].exec && p->graph[i].context == context)
            graph_destroy(p, &p->graph[i]);
    }
    if (is_in_use(p, context))
        return;
    drop_blocks(p, context);
    drop_streams_and_events(p, context);
    if (context == 2) {
        program_enter(p, 0);
        if (p->peers)
            MUST(p, cuCtxDisablePeerAccess(p->context[2]));
        MUST(p, cuDevicePrimaryCtxReset_v2(1));
        MUST(p, cuDevicePrimaryCtxRelease_v2(1)); /* else it, and what it may reach, would outlive the program */
        p->peers = false;
    } else {
        MUST(p, cuCtxDestroy_v2(p->context[context]));
    }
    p->context[context] = NULL;
    program_enter(p, 0);
}

void move_contexts(struct program *p)
{
    if (program_random(p, 4))
        return;
    if (p->seed % 4 == 1 && !p->alone && program_random(p, 2)) {
        int devices = 0;
        if (p->context[2])
            end_context(p, 2);
        else if (cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices > 1)
            context_begin(p);
    } else if (p->kind == KIND_CUDA && p->context[1]) {
        end_context(p, 1);
    } else if (p->kind == KIND_CUDA && p->seed % 3 == 0) {
        context_make_created(p);
    }
}

/* In the child nothing of CUDA works; what it frees there, as destructors do, must not matter. */
static void fork_and_free(struct program *p)
{
    struct block *b = block_pick(p, -1);
    void *address = b && !b->of_pool ? (void *)(uintptr_t)b->address : NULL;
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr fresh;
        alarm(5);
        if (address)
            (void)cudaFree(address);
        (void)cuMemAlloc_v2(&fresh, 100);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        program_check(p, CUDA_ERROR_UNKNOWN, "a child that frees");
}

void move_life(struct program *p)
{
    size_t available;
    switch (program_random(p, 12)) {
    case 0:
        if (!p->alone)
            fork_and_free(p);
        return;
    case 1:
    case 2:
        extras.trim(0, program_random(p, 2) ? 0 : (size_t)program_random(p, 64) << 20);
        return;
    case 3:
    case 4:
    case 5:
        MUST(p, cuMemGetInfo_v2(&available, NULL));
        return;
    default:
        return;
    }
}
