/* A program that takes device memory by every kind of call, ours and the driver's own. It plays the words of its command
   line, or those that it draws from a seed, and ends with status 3 at the first call that runs out of memory.

   usage: own_memory [--print] --seed N | WORD…

   A word is a letter and a number. Those that take K KiB make a block, numbered from 0:
     mK  cuMemAlloc             cK  cuMemCreate, mapped      kK  the same, with its handle released at once
     aK  cuMemAllocAsync        bK  from a pool of its own   uK  managed memory, set by the device
     hK  an allocation node of a graph, launched             gK  the same with a node that frees it: no block
   fN frees block N. s waits for the device. tK sets the release threshold of the device's pool, x trims it.
   z ends: whatever lives is freed by the driver. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_proto.h"

enum { WORDS_MOST = 256, BLOCKS_MOST = WORDS_MOST, RAN_OUT = 3, WRONG = 4 };
static const size_t granule = 2 << 20;

static struct block {
    char kind; /* 0: freed */
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    CUgraph graph;
    CUgraphExec exec;
} block[BLOCKS_MOST];
static int blocks, step;
static CUstream stream;
static CUmemoryPool own_pool;
static const char *word;

/* Whether the call has served; ends the program where it has not. */
static void must(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("step %d, %s: %s answers %d\n", step, word, what, (int)result);
    fflush(stdout);
    _Exit(result == CUDA_ERROR_OUT_OF_MEMORY ? RAN_OUT : WRONG);
}
#define MUST(call) must(call, #call)

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static void create(struct block *new, bool keeps_handle)
{
    const CUmemAccessDesc access = {on_device.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    new->bytes = (new->bytes + granule - 1) / granule *granule;
    MUST(cuMemCreate(&new->handle, new->bytes, &on_device, 0));
    MUST(cuMemAddressReserve(&new->address, new->bytes, 0, 0, 0));
    MUST(cuMemMap(new->address, new->bytes, 0, new->handle, 0));
    MUST(cuMemSetAccess(new->address, new->bytes, &access, 1));
    if (!keeps_handle)
        MUST(cuMemRelease(new->handle));
}

static void take_managed(struct block *new)
{
    MUST(cuMemAllocManaged(&new->address, new->bytes, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemsetD8_v2(new->address, 1, new->bytes));
}

static void launch(struct block *new, bool frees)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = new->bytes,
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_device.location}};
    CUgraphNode node, end;
    MUST(cuGraphCreate(&new->graph, 0));
    MUST(cuGraphAddMemAllocNode(&node, new->graph, NULL, 0, &params));
    new->address = params.dptr;
    if (frees)
        MUST(cuGraphAddMemFreeNode(&end, new->graph, &node, 1, params.dptr));
    MUST(cuGraphInstantiateWithFlags(&new->exec, new->graph, 0));
    MUST(cuGraphLaunch(new->exec, stream));
}

static void drop_graph(struct block *old)
{
    MUST(cuGraphExecDestroy(old->exec));
    MUST(cuGraphDestroy(old->graph));
}

static void take(char kind, size_t bytes)
{
    struct block new = {.kind = kind, .bytes = bytes};
    switch (kind) {
    case 'm':
        MUST(cuMemAlloc_v2(&new.address, bytes));
        break;
    case 'a':
        MUST(cuMemAllocAsync(&new.address, bytes, stream));
        break;
    case 'b':
        MUST(cuMemAllocFromPoolAsync(&new.address, bytes, own_pool, stream));
        break;
    case 'c':
    case 'k':
        create(&new, kind == 'c');
        break;
    case 'u':
        take_managed(&new);
        break;
    case 'g':
        launch(&new, true);
        MUST(cuStreamSynchronize(stream));
        drop_graph(&new);
        return;
    case 'h':
        launch(&new, false);
        break;
    default:
        MUST(CUDA_ERROR_INVALID_VALUE);
    }
    block[blocks++] = new;
}

static void give(struct block *old)
{
    char kind = old->kind;
    old->kind = 0;
    switch (kind) {
    case 'm':
    case 'u':
        MUST(cuMemFree_v2(old->address));
        break;
    case 'a':
    case 'b':
    case 'h':
        MUST(cuMemFreeAsync(old->address, stream));
        break;
    case 'c':
    case 'k':
        MUST(cuMemUnmap(old->address, old->bytes));
        MUST(cuMemAddressFree(old->address, old->bytes));
        break;
    default:
        break; /* it is free already */
    }
    if (kind == 'c')
        MUST(cuMemRelease(old->handle));
    if (kind == 'h')
        drop_graph(old);
}

static void play(const char *text)
{
    CUmemoryPool pool;
    char *end;
    unsigned long long number = strtoull(text + 1, &end, 10);
    cuuint64_t bytes = (cuuint64_t)number << 10;
    word = text;
    if (*end || (*text == 'f' && number >= (unsigned)blocks))
        MUST(CUDA_ERROR_INVALID_VALUE);
    switch (*text) {
    case 'f':
        give(&block[number]);
        break;
    case 's':
        MUST(cuCtxSynchronize());
        break;
    case 't':
        MUST(cuDeviceGetDefaultMemPool(&pool, 0));
        MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes));
        break;
    case 'x':
        MUST(cuDeviceGetDefaultMemPool(&pool, 0));
        MUST(cuMemPoolTrimTo(pool, 0));
        break;
    default:
        take(*text, bytes);
    }
    step++;
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

/* A program of 6 to 60 words of some kinds; each has memory of ours. */
static int draw_words(uint64_t seed, char text[WORDS_MOST][16])
{
    static const char all[] = "mabckhgu";
    char kinds[16] = "m", live[WORDS_MOST] = {0};
    int count = 0, made = 0, kept = 1, words;
    state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 20; i++)
        draw(2);
    while (kept < 2 + (int)draw(4))
        kinds[kept++] = all[draw(sizeof all - 1)];
    words = 6 + (int)draw(55);
    while (count < words) {
        unsigned what = (unsigned)draw(100);
        if (what < 34 && made) {
            int at = (int)draw((uint64_t)made);
            if (live[at])
                snprintf(text[count++], 16, "f%d", at);
            live[at] = 0;
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
    return count;
}

int main(int count, char **argument)
{
    static char drawn[WORDS_MOST][16];
    CUcontext context;
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_device.location};
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
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemPoolCreate(&own_pool, &props));
    for (int i = 0; i < words && i < WORDS_MOST; i++)
        play(first < 0 ? drawn[i] : argument[first + i]);
    return 0;
}
