/* A program that takes device memory by every kind of call, ours and the driver's own. It plays the words of its command
   line, or those that it draws from a seed, and ends with status 3 at the first call that runs out of memory.

   usage: own_memory [--print] --seed N | WORD…

   A word is a letter and a number. Those that take K KiB make a block, numbered from 0:
     mK  cuMemAlloc             cK  cuMemCreate, mapped      kK  the same, with its handle released at once
     aK  cuMemAllocAsync        bK  from a pool of its own   uK  managed memory, set by the device
     hK  an allocation node of a graph, launched             gK  the same with a node that frees it: no block
     iK  cuMemCreate, exported, released, and mapped as it was imported from the descriptor
     rK  cuMemCreate, mapped, released, and its handle asked for by the address
   fN frees block N. s waits for the devices. tK sets the release threshold of the device's pool, x trims it.

   These say how the words after them are played:
     lN     pools and graphs have streams of their own (0), the legacy stream (1), or that of the thread (2)
     dN     what they take is of device N. Device 0 stays current wherever the call does not need the other
     e      no context is current, until the next e, but for calls that need one
     q, v   a capture begins, in relaxed mode and on a stream of its own, and ends; q1 in the mode of a thread, q2 in global
            mode. What those forbid takes nothing, and the capture comes to nothing
     j      the next word is played by another thread, which has no context
     pK     another process of this program takes K KiB of ours on device 0 and holds them; oK: one without a preloaded library
     y      those end; so they do with this process
     w      waits until standard input ends, for those
     z      ends the process at once: nothing is freed, and no handler of an exit runs

   An example. "m1024 d1 e c2048": 1 MiB of ours on device 0, then 2 MiB by cuMemCreate of device 1, which has no context,
   by a thread that has none either. */
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_proto.h"

enum { WORDS_MOST = 256, BLOCKS_MOST = WORDS_MOST, RAN_OUT = 3, WRONG = 4 };
static const size_t granule = 2 << 20;

static struct block {
    char kind; /* 0: freed */
    int device;
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    CUgraph graph;
    CUgraphExec exec;
    CUstream by_default; /* a default stream that it is allocated and freed in */
} block[BLOCKS_MOST];
enum { DEVICES = 2 };
static int blocks, step, at;             /* at: the device that words are about */
static CUcontext context[DEVICES];       /* NULL: nothing has needed one yet */
static CUstream stream[DEVICES], captured;
static CUstream by_default; /* the default stream that pools and graphs have; NULL: streams of their own */
static CUmemoryPool own_pool[DEVICES];
static bool captures, by_thread, taking; /* taking: within a word that makes a block */
static CUstreamCaptureMode mode; /* of the capture */
static const char *word;
static _Thread_local jmp_buf forbidden; /* the rest of a word that a capture forbids */

static bool is_forbidden(CUresult result)
{
    return captures && mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
           (result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

/* Whether the call has served; ends the program where it has not. */
static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    if (is_forbidden(result))
        longjmp(forbidden, 1);
    printf("step %d, %s: %s answers %d\n", step, word, what, (int)result);
    fflush(stdout);
    _Exit(result == CUDA_ERROR_OUT_OF_MEMORY ? RAN_OUT : WRONG);
}
#define MUST(call) must(call, #call)

static CUmemLocation there(void)
{
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = at};
}

/* Makes a context of the device current, and a stream for it. */
static void enter(int device)
{
    if (!context[device])
        MUST(cuDevicePrimaryCtxRetain(&context[device], device));
    MUST(cuCtxPushCurrent_v2(context[device]));
    if (!stream[device])
        MUST(cuStreamCreate(&stream[device], CU_STREAM_NON_BLOCKING));
}

static void leave(void)
{
    CUcontext popped;
    MUST(cuCtxPopCurrent_v2(&popped));
}

/* For a call that needs any context. Whether there was none. */
static bool enter_any(int device)
{
    CUcontext current = NULL;
    MUST(cuCtxGetCurrent(&current));
    if (!current)
        enter(device);
    return !current;
}

/* Around a call for memory in stream order; returns its stream. A default one is that of the current context. */
static CUstream enter_order(CUstream of_default, int device)
{
    if (of_default)
        enter(device);
    return of_default ? of_default : stream[device];
}

static void leave_order(CUstream of_default)
{
    if (of_default)
        leave();
}

/* The memory by another handle, which a descriptor leads to. */
static void import(struct block *new)
{
    int file;
    MUST(cuMemExportToShareableHandle(&file, new->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    MUST(cuMemRelease(new->handle));
    MUST(cuMemImportFromShareableHandle(&new->handle, (void *)(intptr_t)file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(file);
}

static void create(struct block *new, bool keeps_handle)
{
    const CUmemAccessDesc access = {there(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = there(),
        .requestedHandleTypes = new->kind == 'i' ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0};
    new->bytes = (new->bytes + granule - 1) / granule *granule;
    MUST(cuMemCreate(&new->handle, new->bytes, &prop, 0));
    if (new->kind == 'i')
        import(new);
    MUST(cuMemAddressReserve(&new->address, new->bytes, 0, 0, 0));
    MUST(cuMemMap(new->address, new->bytes, 0, new->handle, 0));
    MUST(cuMemSetAccess(new->address, new->bytes, &access, 1));
    if (!keeps_handle)
        MUST(cuMemRelease(new->handle));
    if (new->kind == 'r')
        MUST(cuMemRetainAllocationHandle(&new->handle, (void *)(uintptr_t) new->address));
}

static void take_managed(struct block *new)
{
    enter(at);
    MUST(cuMemAllocManaged(&new->address, new->bytes, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemsetD8Async(new->address, 1, new->bytes, stream[at]));
    MUST(cuStreamSynchronize(stream[at]));
    leave();
}

static void launch(struct block *new, bool frees)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = new->bytes,
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = there()}};
    CUgraphNode node, end;
    MUST(cuGraphCreate(&new->graph, 0));
    MUST(cuGraphAddMemAllocNode(&node, new->graph, NULL, 0, &params));
    new->address = params.dptr;
    if (frees)
        MUST(cuGraphAddMemFreeNode(&end, new->graph, &node, 1, params.dptr));
    MUST(cuGraphInstantiateWithFlags(&new->exec, new->graph, 0));
    MUST(cuGraphLaunch(new->exec, enter_order(new->by_default, 0)));
    if (frees)
        MUST(cuStreamSynchronize(new->by_default ? new->by_default : stream[0]));
    leave_order(new->by_default);
}

static void drop_graph(struct block *old)
{
    MUST(cuGraphExecDestroy(old->exec));
    MUST(cuGraphDestroy(old->graph));
}

static void take(char kind, size_t bytes)
{
    struct block new = {.kind = kind, .bytes = bytes, .device = at, .by_default = by_default};
    taking = kind != 'g';
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = there()};
    switch (kind) {
    case 'm':
        enter(at);
        MUST(cuMemAlloc_v2(&new.address, bytes));
        leave();
        break;
    case 'a':
        enter(at); /* which has a stream from here on */
        leave();
        MUST(cuMemAllocAsync(&new.address, bytes, enter_order(by_default, at)));
        leave_order(by_default);
        break;
    case 'b':
        if (!own_pool[at])
            MUST(cuMemPoolCreate(&own_pool[at], &props));
        MUST(cuMemAllocFromPoolAsync(&new.address, bytes, own_pool[at], enter_order(by_default, 0)));
        leave_order(by_default);
        break;
    case 'c':
    case 'i':
    case 'k':
    case 'r':
        create(&new, kind == 'c' || kind == 'i');
        break;
    case 'u':
        take_managed(&new);
        break;
    case 'g':
        launch(&new, true);
        drop_graph(&new);
        return;
    case 'h':
        launch(&new, false);
        break;
    default:
        MUST(CUDA_ERROR_INVALID_VALUE);
    }
    block[blocks++] = new;
    taking = false;
}

static void give(struct block *old)
{
    char kind = old->kind;
    bool entered = false;
    old->kind = 0;
    switch (kind) {
    case 'm':
    case 'u':
        entered = enter_any(old->device);
        MUST(cuMemFree_v2(old->address));
        if (entered)
            leave();
        break;
    case 'a':
        MUST(cuMemFreeAsync(old->address, enter_order(old->by_default, old->device)));
        leave_order(old->by_default);
        break;
    case 'b':
    case 'h':
        MUST(cuMemFreeAsync(old->address, enter_order(old->by_default, 0)));
        leave_order(old->by_default);
        break;
    case 'c':
    case 'i':
    case 'k':
    case 'r':
        MUST(cuMemUnmap(old->address, old->bytes));
        MUST(cuMemAddressFree(old->address, old->bytes));
        break;
    default:
        break; /* it is free already */
    }
    if (kind == 'c' || kind == 'i' || kind == 'r')
        MUST(cuMemRelease(old->handle));
    if (kind == 'h')
        drop_graph(old);
}

/* Other processes, and the ends of pipes that they wait at. */
static struct {
    pid_t pid;
    int input;
} other[WORDS_MOST];
static int others;

static void be_other(const int input[2], const int output[2], char *bytes, bool preloads)
{
    static char name[] = "own_memory", waits[] = "w";
    char *const arguments[] = {name, bytes, waits, NULL};
    dup2(input[0], 0);
    dup2(output[1], 1);
    close(input[0]), close(input[1]), close(output[0]), close(output[1]);
    for (int i = 0; i < others; i++)
        close(other[i].input);
    if (!preloads)
        unsetenv("LD_PRELOAD");
    execv("/proc/self/exe", arguments);
    _Exit(WRONG);
}

/* It says "w" once it has its memory. */
static void start_other(unsigned long long kib, bool preloads)
{
    int input[2], output[2], status = 0;
    char bytes[32], said[256] = "";
    snprintf(bytes, sizeof bytes, "m%llu", kib);
    if (pipe(input) != 0 || pipe(output) != 0)
        MUST(CUDA_ERROR_OPERATING_SYSTEM);
    pid_t pid = fork();
    if (pid == 0)
        be_other(input, output, bytes, preloads);
    close(input[0]);
    close(output[1]);
    ssize_t length = pid > 0 ? read(output[0], said, sizeof said - 1) : -1;
    close(output[0]);
    other[others].pid = pid;
    other[others++].input = input[1];
    if (length == 1 && *said == 'w')
        return;
    others--;
    close(input[1]);
    (void)waitpid(pid, &status, 0);
    printf("step %d, %s: another process: %s", step, word, said);
    fflush(stdout);
    _Exit(WIFEXITED(status) && WEXITSTATUS(status) == RAN_OUT ? RAN_OUT : WRONG);
}

static void end_others(void)
{
    for (; others; others--) {
        close(other[others - 1].input);
        (void)waitpid(other[others - 1].pid, NULL, 0);
    }
}

static void wait_for_end(void)
{
    char unused[16];
    (void)!write(1, "w", 1);
    while (read(0, unused, sizeof unused) > 0) {
    }
}

/* What a capture forbids is left out. */
static void wait_for_all(void)
{
    for (int i = 0; i < DEVICES && !captures; i++) {
        if (!context[i])
            continue;
        enter(i);
        MUST(cuCtxSynchronize());
        leave();
    }
}

static void toggle_context(void)
{
    CUcontext current = NULL;
    MUST(cuCtxGetCurrent(&current));
    if (current)
        leave();
    else
        enter(0);
}

/* One that came to nothing has no graph, and is over all the same. */
static void capture(bool begins, unsigned long long kind)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CU_STREAM_CAPTURE_MODE_GLOBAL};
    CUgraph graph = NULL;
    bool entered = enter_any(0);
    if (begins && !captures) {
        mode = modes[kind % 3];
        MUST(cuStreamBeginCapture_v2(captured, mode));
    }
    if (!begins && captures) {
        CUresult result = cuStreamEndCapture(captured, &graph);
        if (!is_forbidden(result))
            must(result, "cuStreamEndCapture");
    }
    if (graph)
        MUST(cuGraphDestroy(graph));
    captures = begins;
    if (entered)
        leave();
}

/* Leaves contexts that a word had entered. */
static void leave_until(CUcontext before)
{
    CUcontext current = NULL;
    while (cuCtxGetCurrent(&current) == CUDA_SUCCESS && current && current != before)
        leave();
}

static void *play_now(void *unused)
{
    CUmemoryPool pool;
    char *end;
    CUcontext before = NULL;
    MUST(cuCtxGetCurrent(&before));
    if (setjmp(forbidden)) {
        leave_until(before);
        blocks += taking; /* as one that is freed */
        taking = false;
        return unused;
    }
    unsigned long long number = strtoull(word + 1, &end, 10);
    cuuint64_t bytes = (cuuint64_t)number << 10;
    if (*end || (*word == 'f' && number >= (unsigned)blocks) || (*word == 'd' && number >= DEVICES))
        MUST(CUDA_ERROR_INVALID_VALUE);
    switch (*word) {
    case 'l':
        by_default = (CUstream[]){NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}[number % 3];
        break;
    case 'd':
        at = (int)number;
        break;
    case 'f':
        give(&block[number]);
        break;
    case 's':
        wait_for_all();
        break;
    case 't':
        MUST(cuDeviceGetDefaultMemPool(&pool, at));
        MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
        break;
    case 'x':
        MUST(cuDeviceGetDefaultMemPool(&pool, at));
        MUST(cuMemPoolTrimTo(pool, 0));
        break;
    case 'q':
    case 'v':
        capture(*word == 'q', number);
        break;
    case 'p':
    case 'o':
        start_other(number, *word == 'p');
        break;
    case 'y':
        end_others();
        break;
    case 'w':
        wait_for_end();
        break;
    case 'z':
        fflush(stdout);
        _Exit(0);
    default:
        take(*word, bytes);
    }
    return unused;
}

static void play(const char *text)
{
    pthread_t thread;
    word = text;
    step++;
    if (*text == 'j' || *text == 'e') { /* about this thread */
        by_thread = *text == 'j';
        if (*text == 'e')
            toggle_context();
        return;
    }
    if (!by_thread || *text == 'q' || *text == 'v') { /* a capture that is no thread's own would end by another one */
        play_now(NULL);
        return;
    }
    by_thread = false;
    if (pthread_create(&thread, NULL, play_now, NULL) != 0 || pthread_join(thread, NULL) != 0)
        MUST(CUDA_ERROR_OPERATING_SYSTEM);
}

/* xorshift64* of Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled". */
static uint64_t state;
static uint64_t draw(uint64_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * UINT64_C(2685821657736338717) >> 33) % below;
}

/* A few sizes of every magnitude, up to 24 MiB. */
static unsigned size(void)
{
    unsigned most = 1u << (4 + draw(12));
    unsigned kib = 1 + (unsigned)draw(most);
    return kib < 24u << 10 ? kib : 24u << 10;
}

/* A word that says how the next ones are played. */
static const char *draw_manner(bool second, bool captures_too)
{
    switch (draw(5)) {
    case 0:
        return second ? "d1" : "j";
    case 1:
        return second ? "d0" : "e";
    case 2:
        return captures_too ? draw(2) ? (const char *[]){"q", "q", "q1", "q2"}[draw(4)] : "v" : "e";
    case 3:
        return "e";
    default:
        return "j";
    }
}

/* A program of 6 to 60 words of some kinds; each has memory of ours. Two of three play some words in other manners: on a
   second device, in captures, without a context, in other threads. */
static int draw_words(uint64_t seed, char text[WORDS_MOST][16])
{
    static const char all[] = "mabckhguir";
    char kinds[16] = "m", live[WORDS_MOST] = {0};
    int count = 0, made = 0, kept = 1, words;
    state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 20; i++)
        draw(2);
    while (kept < 2 + (int)draw(4))
        kinds[kept++] = all[draw(sizeof all - 1)];
    words = 6 + (int)draw(55);
    bool manners = draw(3), second = manners && draw(2), captures_too = manners && draw(2), ends = draw(16) == 0,
         others_too = draw(8) == 0, defaults_too = draw(3) == 0;
    while (count < words) {
        unsigned what = (unsigned)draw(100);
        if (manners && draw(5) == 0) {
            snprintf(text[count++], 16, "%s", draw_manner(second, captures_too));
        } else if (defaults_too && draw(10) == 0) {
            snprintf(text[count++], 16, "l%u", (unsigned)draw(3));
        } else if (others_too && draw(10) == 0) {
            if (draw(3))
                snprintf(text[count++], 16, "%c%u", draw(2) ? 'p' : 'o', size());
            else
                snprintf(text[count++], 16, "y");
        } else if (what < 34 && made) {
            int number = (int)draw((uint64_t)made);
            if (live[number])
                snprintf(text[count++], 16, "f%d", number);
            live[number] = 0;
        } else if (what < 40) {
            snprintf(text[count++], 16, "s");
        } else if (what < 42) {
            snprintf(text[count++], 16, "t%u", draw(2) ? 0 : size() * 2);
        } else if (what < 43) {
            snprintf(text[count++], 16, "x");
        } else {
            char kind = kinds[draw((uint64_t)kept)];
            snprintf(text[count++], 16, "%c%u", kind, size());
            if (kind != 'g')
                live[made++] = 1;
        }
    }
    if (ends)
        snprintf(text[count++], 16, "z");
    return count;
}

int main(int count, char **argument)
{
    static char drawn[WORDS_MOST][16];
    bool prints = count > 1 && strcmp(argument[1], "--print") == 0;
    int first = 1 + prints, words = count - first;
    if (words == 2 && strcmp(argument[first], "--seed") == 0) {
        words = draw_words(strtoull(argument[first + 1], NULL, 10), drawn);
        first = -1;
    }
    for (int i = 0; prints && i < words; i++)
        printf("%s%c", first < 0 ? drawn[i] : argument[first + i], i + 1 < words ? ' ' : '\n');
    if (prints)
        return 0;
    word = "start";
    MUST(cuInit(0));
    enter(0);
    MUST(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < words && i < WORDS_MOST; i++)
        play(first < 0 ? drawn[i] : argument[first + i]);
    return 0;
}
