/* Programs drawn by a seed: two devices where there are so many, streams, plain and stream-ordered memory, graphs, resets
   and wrong calls. Each is printed with what it returned, and every block is checked for what was last written to it. Usage:
   random_calls [FIRST [COUNT]] */
#include <stdbool.h>

#include "stranger.h"

enum { DEVICES_MOST = 2, STREAMS = 3, BLOCKS = 24, GRAPHS = 4, STEPS = 160 };

static struct block {
    unsigned char *at;
    size_t bytes;
    int device, stream, value; /* value: of all bytes, -1: not written yet */
    bool ordered;              /* of cudaMallocAsync */
    int graphs;                /* that write to it */
} block[BLOCKS];

static struct graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    struct block *block;
    int value;
} graph[GRAPHS];

static cudaStream_t stream[DEVICES_MOST][STREAMS];
static int devices;
static unsigned state;

static unsigned any(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return mix(state) % below;
}

/* Of a machine with one device, that one. */
static int other_than(int device)
{
    return devices - 1 - device;
}

static size_t any_size(void)
{
    static const size_t usual[] = {1, 100, 512, 4096, 65536, 65537, 1 << 20, (1 << 20) + 1, 2 << 20, 3 << 20};
    return any(2) ? usual[any(sizeof usual / sizeof *usual)] : 1 + any(4 << 20);
}

static struct block *any_block(bool live)
{
    for (int tries = 0; tries < 40; tries++) {
        struct block *found = &block[any(BLOCKS)];
        if ((found->at != NULL) == live)
            return found;
    }
    return NULL;
}

static cudaStream_t stream_of(const struct block *of)
{
    return stream[of->device][of->stream];
}

static void say(const char *what, cudaError_t error)
{
    printf("%s: %s\n", what, cudaGetErrorName(error));
}

static void check(const struct block *of)
{
    unsigned char first = 0, last = 0;
    if (of->value < 0)
        return;
    MUST(cudaSetDevice(of->device));
    MUST(cudaMemcpyAsync(&first, of->at, 1, cudaMemcpyDeviceToHost, stream_of(of)));
    MUST(cudaMemcpyAsync(&last, of->at + of->bytes - 1, 1, cudaMemcpyDeviceToHost, stream_of(of)));
    MUST(cudaStreamSynchronize(stream_of(of)));
    if (first != of->value || last != of->value)
        printf("1 wrong: %d and %d for %d\n", first, last, of->value);
}

static void allocate(bool ordered)
{
    struct block *made = any_block(false);
    if (!made)
        return;
    *made = (struct block){.bytes = any_size(),
        .device = (int)any((unsigned)devices),
        .stream = (int)any(STREAMS),
        .value = -1,
        .ordered = ordered};
    MUST(cudaSetDevice(made->device));
    say(ordered ? "allocate in order" : "allocate",
        ordered ? cudaMallocAsync((void **)&made->at, made->bytes, stream_of(made))
                : cudaMalloc((void **)&made->at, made->bytes));
}

static void drop_graph(struct graph *gone)
{
    if (!gone->exec)
        return;
    MUST(cudaGraphExecDestroy(gone->exec));
    MUST(cudaGraphDestroy(gone->graph));
    gone->block->graphs--;
    *gone = (struct graph){0};
}

static void release(void)
{
    struct block *gone = any_block(true);
    if (!gone || gone->graphs)
        return;
    check(gone);
    MUST(cudaSetDevice(any(4) ? gone->device : other_than(gone->device)));
    if (gone->ordered && any(4)) {
        MUST(cudaSetDevice(gone->device));
        say("free in order", cudaFreeAsync(gone->at, stream_of(gone)));
    } else {
        MUST(cudaStreamSynchronize(stream_of(gone)));
        say("free", cudaFree(gone->at));
    }
    gone->at = NULL;
}

static void write_to(void)
{
    struct block *to = any_block(true);
    if (!to)
        return;
    to->value = (int)any(256);
    MUST(cudaSetDevice(to->device));
    MUST(cudaMemsetAsync(to->at, to->value, to->bytes, stream_of(to)));
}

/* The destination's stream comes after the source's by an event, and the source's after the destination's. */
static void copy(void)
{
    struct block *from = any_block(true), *to = any_block(true);
    if (!from || !to || from == to || from->value < 0 || from->bytes < to->bytes)
        return;
    cudaEvent_t event;
    MUST(cudaSetDevice(from->device));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaEventRecord(event, stream_of(from)));
    MUST(cudaSetDevice(to->device));
    MUST(cudaStreamWaitEvent(stream_of(to), event, 0));
    MUST(from->device == to->device
             ? cudaMemcpyAsync(to->at, from->at, to->bytes, cudaMemcpyDeviceToDevice, stream_of(to))
             : cudaMemcpyPeerAsync(to->at, to->device, from->at, from->device, to->bytes, stream_of(to)));
    to->value = from->value;
    MUST(cudaStreamSynchronize(stream_of(to)));
    MUST(cudaEventDestroy(event));
}

static void capture(void)
{
    static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
        cudaStreamCaptureModeRelaxed};
    struct graph *made = &graph[any(GRAPHS)];
    struct block *to = any_block(true);
    unsigned char *inside;
    if (!to || to->ordered || to->stream == 0) /* the default stream can't be captured */
        return;
    drop_graph(made);
    MUST(cudaSetDevice(to->device));
    MUST(cudaStreamBeginCapture(stream_of(to), modes[any(3)]));
    made->value = (int)any(256);
    if (any(2)) {
        MUST(cudaMallocAsync((void **)&inside, to->bytes, stream_of(to)));
        MUST(cudaMemsetAsync(inside, made->value, to->bytes, stream_of(to)));
        MUST(cudaMemcpyAsync(to->at, inside, to->bytes, cudaMemcpyDeviceToDevice, stream_of(to)));
        MUST(cudaFreeAsync(inside, stream_of(to)));
    } else {
        MUST(cudaMemsetAsync(to->at, made->value, to->bytes, stream_of(to)));
    }
    MUST(cudaStreamEndCapture(stream_of(to), &made->graph));
    MUST(cudaGraphInstantiate(&made->exec, made->graph, 0));
    made->block = to;
    to->graphs++;
}

static void launch(void)
{
    const struct graph *runs = &graph[any(GRAPHS)];
    if (!runs->exec)
        return;
    MUST(cudaSetDevice(runs->block->device));
    MUST(cudaGraphLaunch(runs->exec, stream_of(runs->block)));
    runs->block->value = runs->value;
}

/* What the reference forbids, and a thread's error after it. */
static void wrong_call(void)
{
    struct block *of = any_block(true);
    unsigned char *other, byte;
    if (!of || of->ordered)
        return;
    MUST(cudaSetDevice(of->device));
    switch (any(6)) {
    case 0:
        say("free inside", of->bytes > 1 ? cudaFree(of->at + 1 + any((unsigned)of->bytes - 1)) : cudaSuccess);
        break;
    case 1:
        MUST(cudaMalloc((void **)&other, of->bytes));
        MUST(cudaFree(other));
        say("free again", cudaFree(other));
        break;
    case 2:
        say("free of the host's", cudaFree(&byte));
        break;
    case 3:
        say("too much", cudaMalloc((void **)&other, (size_t)1 << 40));
        break;
    case 4:
        say("in another's stream", cudaMemsetAsync(of->at, of->value, 0, stream[other_than(of->device)][0]));
        break;
    default:
        say("nothing", cudaFree(NULL));
    }
    say("last", cudaGetLastError());
}

static void ask(void)
{
    const struct block *of = any_block(true);
    struct cudaPointerAttributes attributes;
    if (!of)
        return;
    MUST(cudaPointerGetAttributes(&attributes, of->at + of->bytes / 2));
    printf("kind %d on %d, at its place: %d\n", (int)attributes.type, attributes.device,
        attributes.devicePointer == of->at + of->bytes / 2);
}

static void make_streams(int device)
{
    MUST(cudaSetDevice(device));
    for (int i = 1; i < STREAMS; i++)
        MUST(cudaStreamCreateWithFlags(&stream[device][i], i == 1 ? cudaStreamNonBlocking : cudaStreamDefault));
}

static void reset(int device)
{
    for (int i = 0; i < GRAPHS; i++)
        if (graph[i].exec && graph[i].block->device == device)
            drop_graph(&graph[i]);
    MUST(cudaSetDevice(device));
    for (int i = 0; i < BLOCKS; i++) {
        if (!block[i].at || block[i].device != device)
            continue;
        if (block[i].ordered) /* pools are the device's */
            MUST(cudaFreeAsync(block[i].at, stream_of(&block[i])));
        block[i].at = NULL;
    }
    MUST(cudaDeviceSynchronize());
    say("reset", cudaDeviceReset());
    make_streams(device);
}

static void step(void)
{
    unsigned which = any(100);
    if (which < 22)
        allocate(false);
    else if (which < 30)
        allocate(true);
    else if (which < 48)
        release();
    else if (which < 66)
        write_to();
    else if (which < 74)
        copy();
    else if (which < 79)
        capture();
    else if (which < 87)
        launch();
    else if (which < 93)
        wrong_call();
    else if (which < 97)
        ask();
    else if (which < 99)
        MUST(cudaDeviceSynchronize());
    else
        reset((int)any((unsigned)devices));
}

int main(int count, char **argument)
{
    unsigned first = count > 1 ? (unsigned)atoi(argument[1]) : 1, seeds = count > 2 ? (unsigned)atoi(argument[2]) : 12;
    MUST(cudaGetDeviceCount(&devices));
    devices = devices < DEVICES_MOST ? devices : DEVICES_MOST;
    for (int device = 0; device < devices; device++)
        make_streams(device);
    for (unsigned seed = first; seed < first + seeds; seed++) {
        state = seed * 2654435761u;
        printf("seed %u\n", seed);
        for (int i = 0; i < STEPS; i++)
            step();
        for (int i = 0; i < BLOCKS; i++)
            if (block[i].at)
                check(&block[i]);
        for (int device = 0; device < devices; device++)
            reset(device);
    }
    return 0;
}
