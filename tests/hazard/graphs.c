/* What a program captures, launches and destroys. */
#include "program.h"

static struct graph *empty_graph(struct program *p)
{
    for (int i = 0; i < GRAPHS; i++) {
        if (!p->graph[i].exec)
            return &p->graph[i];
    }
    return NULL;
}

static struct graph *pick_graph(struct program *p)
{
    struct graph *graph = &p->graph[program_random(p, GRAPHS)];
    return graph->exec ? graph : NULL;
}

static void add_block(struct graph *graph, struct block *block)
{
    for (unsigned i = 0; i < graph->blocks; i++) {
        if (graph->block[i] == block)
            return;
    }
    if (graph->blocks < GRAPH_BLOCKS) {
        graph->block[graph->blocks++] = block;
        block->graphs++;
    }
}

static bool has_block(const struct graph *graph, const struct block *block)
{
    bool has = false;
    for (unsigned i = 0; i < graph->blocks; i++)
        has |= graph->block[i] == block;
    return has;
}

/* What the driver served itself, having run out, is the driver's to free at once. */
static bool is_ours(const struct block *block)
{
    unsigned long long rights;
    const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, program_device(block->context)};
    return cuMemGetAccess(&rights, &device, block->address) == CUDA_SUCCESS;
}

/* Memory that is allocated while a stream captures, and perhaps freed: it is the graph's. */
static void allocate_inside(struct program *p, struct graph *graph, int stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (graph->blocks == GRAPH_BLOCKS)
        return;
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
    struct block *b = block_allocate(p, stream);
    if (b) {
        add_block(graph, b);
        block_touch(p, b, stream);
        b->of_graph = p->kind != KIND_CUDA && program_random(p, 2) && is_ours(b);
        if (b->of_graph)
            block_give_back(p, b);
    }
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
}

/* Somebody else's memory is freed meanwhile. */
static void free_meanwhile(struct program *p, const struct graph *graph)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct block *b = block_pick(p, -1);
    if (p->kind != KIND_CUDA || !b || b->graphs || b->of_pool || has_block(graph, b))
        return;
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
    extras.owner(b->address, b->bytes, 0);
    MUST(p, cuMemFree_v2(b->address));
    b->address = 0;
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
}

/* A second stream takes part: it joins by an event and is joined again. */
static void capture_fork(struct program *p, struct graph *graph, int stream, int second)
{
    CUevent out, back;
    struct event *used = NULL;
    for (int i = 0; i < EVENTS; i++) {
        if (p->event[i].handle && p->event[i].context == graph->context)
            used = &p->event[i];
    }
    if (used && program_random(p, 2)) /* one that stood for something else before */
        out = used->handle;
    else if (used = NULL, !MUST(p, cuEventCreate(&out, CU_EVENT_DISABLE_TIMING)))
        return;
    if (!MUST(p, cuEventCreate(&back, CU_EVENT_DISABLE_TIMING)))
        return;
    MUST(p, cuEventRecord(out, p->stream[stream].handle));
    MUST(p, cuStreamWaitEvent(p->stream[second].handle, out, 0));
    for (unsigned i = 0; i < graph->blocks; i++)
        block_touch(p, graph->block[i], second);
    MUST(p, cuEventRecord(back, p->stream[second].handle));
    MUST(p, cuStreamWaitEvent(p->stream[stream].handle, back, 0));
    MUST(p, cuEventDestroy_v2(back));
    MUST(p, cuEventDestroy_v2(out));
    if (used)
        used->handle = NULL;
}

static void instantiate(struct program *p, struct graph *graph, CUgraph captured)
{
    graph->graph = captured;
    if (program_random(p, 3) == 0) { /* what belongs to the graph belongs to its clone too */
        CUgraph clone;
        if (MUST(p, cuGraphClone(&clone, captured))) {
            MUST(p, cuGraphDestroy(captured));
            graph->graph = clone;
        }
    }
    if (!MUST(p, cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0)))
        graph->exec = NULL;
    if (graph->exec && program_random(p, 2)) { /* and to what was instantiated */
        MUST(p, cuGraphDestroy(graph->graph));
        graph->graph = NULL;
    }
}

static void capture(struct program *p, struct graph *graph)
{
    int stream = (int)program_random(p, CREATED_MAX), second = (int)program_random(p, CREATED_MAX);
    if (!stream_exists(p, stream))
        return;
    graph->context = p->stream[stream].context;
    graph->blocks = 0;
    bool forks = stream != second && stream_exists(p, second) && p->stream[second].context == graph->context;
    for (unsigned i = program_random(p, 4); i-- > 0;) {
        struct block *b = block_pick(p, program_device(graph->context));
        if (b && !b->of_pool && (p->kind == KIND_CUDA || b->home >= 0) && !has_block(graph, b)) {
            block_show(p, b, stream);
            add_block(graph, b);
        }
    }
    program_enter(p, graph->context);
    CUgraph captured;
    CUstreamCaptureMode mode = (CUstreamCaptureMode)program_random(p, 3);
    if (!MUST(p, cuStreamBeginCapture_v2(p->stream[stream].handle, mode)))
        return;
    for (unsigned i = 0; i < graph->blocks; i++)
        block_touch(p, graph->block[i], stream);
    if (program_random(p, 2))
        allocate_inside(p, graph, stream);
    if (forks && graph->blocks)
        capture_fork(p, graph, stream, second);
    if (program_random(p, 2))
        free_meanwhile(p, graph);
    if (program_random(p, 2))
        allocate_inside(p, graph, stream);
    if (MUST(p, cuStreamEndCapture(p->stream[stream].handle, &captured)))
        instantiate(p, graph, captured);
    else
        graph_destroy(p, graph);
}

void graph_destroy(struct program *p, struct graph *graph)
{
    if (graph->exec)
        MUST(p, cuGraphExecDestroy(graph->exec));
    if (graph->graph)
        MUST(p, cuGraphDestroy(graph->graph));
    for (unsigned i = 0; i < graph->blocks; i++) {
        struct block *b = graph->block[i];
        b->graphs--;
        if (b->of_graph && !b->graphs) {
            extras.owner(b->address, b->bytes, 0);
            b->address = 0;
        }
    }
    *graph = (struct graph){0};
}

static void launch(struct program *p, struct graph *graph)
{
    int stream = stream_pick(p, graph->context);
    if (stream < 0)
        return;
    for (unsigned i = 0; i < graph->blocks; i++)
        block_show(p, graph->block[i], stream);
    program_enter(p, graph->context);
    if (!MUST(p, cuGraphLaunch(graph->exec, p->stream[stream].handle)))
        return;
    stream_submitted(p, stream);
    for (unsigned i = 0; i < graph->blocks; i++)
        block_used(p, graph->block[i], stream);
}

void move_graphs(struct program *p)
{
    struct graph *empty = empty_graph(p), *graph = pick_graph(p);
    switch (program_random(p, 8)) {
    case 0:
    case 1:
    case 2:
        if (empty)
            capture(p, empty);
        return;
    case 3:
        if (graph)
            graph_destroy(p, graph);
        return;
    default:
        if (graph)
            launch(p, graph);
    }
}
