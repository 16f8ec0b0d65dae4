/* What a program captures, launches and destroys. */
#include "program.h"
#include "turns.h"

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

bool graph_has(const struct graph *graph, const struct block *block)
{
    bool has = false;
    for (unsigned i = 0; i < graph->blocks; i++)
        has |= graph->block[i] == block;
    return has;
}

/* What was freed in the capture, and has gone to another block there: each launch begins with the first one's work, so
   to whoever uses the bytes outside the graph they are one. */
static void forget_overlapped(struct graph *graph, struct block *new)
{
    for (unsigned i = graph->blocks; i-- > 0;) {
        struct block *b = graph->block[i];
        if (!b->of_graph || b->address >= new->address + new->bytes || new->address >= b->address + b->bytes)
            continue;
        new->owner = b->owner;
        extras.owner(new->address, new->bytes, new->owner);
        b->address = 0;
        b->graphs = 0;
        graph->block[i] = graph->block[--graph->blocks];
    }
}

/* Memory that is allocated while a stream captures, and perhaps freed: it is the graph's. */
static void allocate_inside(struct program *p, struct graph *graph, int stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (graph->blocks == GRAPH_BLOCKS)
        return;
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
    p->inside = graph;
    struct block *b = block_allocate(p, stream);
    p->inside = NULL;
    if (b) {
        forget_overlapped(graph, b);
        add_block(graph, b);
        block_touch(p, b, stream);
        b->of_graph = p->kind != KIND_CUDA && program_random(p, 2) && !b->drivers;
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
    if (p->kind != KIND_CUDA || !b || b->graphs || b->of_pool || graph_has(graph, b) || !block_may_go(b))
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
    for (unsigned i = 0; i < graph->blocks; i++) {
        if (!graph->block[i]->of_graph)
            block_touch(p, graph->block[i], second);
    }
    MUST(p, cuEventRecord(back, p->stream[second].handle));
    MUST(p, cuStreamWaitEvent(p->stream[stream].handle, back, 0));
    MUST(p, cuEventDestroy_v2(back));
    MUST(p, cuEventDestroy_v2(out));
    if (used)
        used->handle = NULL;
}

/* What belongs to a graph belongs to its clone too, and to the graph that it is part of. */
static CUgraph descendant(struct program *p, CUgraph captured)
{
    CUgraph other = NULL;
    CUgraphNode node;
    unsigned choice = program_random(p, 4);
    if (choice == 0)
        MUST(p, cuGraphClone(&other, captured));
    else if (choice == 1 && MUST(p, cuGraphCreate(&other, 0)))
        MUST(p, cuGraphAddChildGraphNode(&node, other, NULL, 0, captured));
    if (!other)
        return captured;
    MUST(p, cuGraphDestroy(captured));
    return other;
}

/* What is instantiated first is not what is launched in the end. */
static void update(struct program *p, struct graph *graph)
{
    CUgraph clone;
    CUgraphExecUpdateResultInfo info;
    if (!MUST(p, cuGraphClone(&clone, graph->graph)))
        return;
    MUST(p, cuGraphExecUpdate_v2(graph->exec, clone, &info));
    MUST(p, cuGraphDestroy(clone));
}

static void instantiate(struct program *p, struct graph *graph, CUgraph captured)
{
    graph->graph = descendant(p, captured);
    if (!MUST(p, cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0)))
        graph->exec = NULL;
    if (graph->exec && program_random(p, 4) == 0)
        update(p, graph);
    if (graph->exec && program_random(p, 2)) { /* and to what was instantiated */
        MUST(p, cuGraphDestroy(graph->graph));
        graph->graph = NULL;
    }
}

static void capture(struct program *p, struct graph *graph);

/* Another thread goes on: it allocates, frees and works, or captures a stream of its own. Only a relaxed one may beside
   a global capture. */
static void beside(void *data)
{
    struct program *p = data;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct graph *graph = empty_graph(p);
    program_enter(p, 0);
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
    if (graph && program_random(p, 3) == 0)
        capture(p, graph);
    for (unsigned i = program_random(p, 6); i-- > 0;) {
        program_enter(p, 0);
        block_churn(p);
    }
    program_enter(p, 0);
    MUST(p, cuThreadExchangeStreamCaptureMode(&mode));
}

static void others_go_on(struct program *p)
{
    int own = p->thread, other = 1 + (int)program_random(p, THREADS - 1);
    if (p->kind != KIND_CUDA || p->capturing++ || other == own) {
        p->capturing--;
        return;
    }
    p->thread = other;
    turn(other, beside, p);
    p->thread = own;
    p->capturing--;
}

static bool begin_capture(struct program *p, CUstream stream)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)program_random(p, 3);
    CUgraph graph;
    if (program_random(p, 4) || cuGraphCreate(&graph, 0) != CUDA_SUCCESS)
        return MUST(p, cuStreamBeginCapture_v2(stream, mode));
    return MUST(p, cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, mode));
}

static void capture(struct program *p, struct graph *graph)
{
    int stream = (int)program_random(p, CREATED_MAX), second = (int)program_random(p, CREATED_MAX);
    if (!stream_exists(p, stream) || p->stream[stream].captured)
        return;
    graph->exec = (CUgraphExec)p; /* not empty, whatever another thread captures meanwhile */
    graph->context = p->stream[stream].context;
    graph->blocks = 0;
    bool forks = stream != second && stream_exists(p, second) && !p->stream[second].captured &&
        p->stream[second].context == graph->context;
    for (unsigned i = program_random(p, 4); i-- > 0;) {
        struct block *b = block_pick(p, program_device(graph->context));
        if (b && !b->of_pool && (p->kind == KIND_CUDA || b->home >= 0) && !graph_has(graph, b)) {
            block_show(p, b, stream);
            add_block(graph, b);
        }
    }
    program_enter(p, graph->context);
    CUgraph captured;
    if (!begin_capture(p, p->stream[stream].handle)) {
        graph->exec = NULL;
        graph_destroy(p, graph);
        return;
    }
    p->stream[stream].captured = true;
    if (forks)
        p->stream[second].captured = true;
    if (program_random(p, 2))
        others_go_on(p);
    for (unsigned i = 0; i < graph->blocks; i++)
        block_touch(p, graph->block[i], stream);
    if (program_random(p, 2))
        allocate_inside(p, graph, stream);
    if (forks && graph->blocks)
        capture_fork(p, graph, stream, second);
    if (program_random(p, 2))
        free_meanwhile(p, graph);
    if (program_random(p, 2))
        others_go_on(p);
    if (program_random(p, 2))
        allocate_inside(p, graph, stream);
    p->stream[stream].captured = false;
    if (forks)
        p->stream[second].captured = false;
    graph->exec = NULL;
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
    if (p->alone) /* what others wait for would ruin its captures, natively too */
        return;
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
