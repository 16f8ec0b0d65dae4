/* Preloaded, on the simulator with its hazard checker. A load is played for which all of the allocator's ways to use memory
   again come together, where memory is short. Pages have two addresses, blocks begin and end in pages of others, and
   streams are behind. Each block is written when it is had, read now and then while it lives, and read before it is freed.
   A finding of the checker is an error.

     memory_pressure FILE STREAMS [JOIN]     rows `allocate` and `free` (RMM's replay format)
     memory_pressure caches STREAMS [JOIN]   caches that grow by being copied, and come and go

   Of several streams a block is one's by its number; they are joined every JOIN allocations (40). */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_proto.h"
#include "extra.h"
#include "segalloc/segalloc.h"
#include "served.h"

enum { BLOCKS = 1 << 16, STREAMS = 8, LOOKS = 4, SLOT_SHIFT = 9 };

struct block {
    CUdeviceptr address;
    uint64_t bytes;
    CUstream stream;
};

static struct block block[BLOCKS];
static uint32_t alive[BLOCKS], place[BLOCKS], alive_count;
static CUstream stream[STREAMS];
static segalloc_sim_touches_fn touches;
static uint64_t allocations, refused;

#define MUST(call) must((call) == CUDA_SUCCESS, #call)

static void must(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "memory_pressure: %s\n", what);
    exit(1);
}

static void nothing(void *unused)
{
    (void)unused;
}

static void touch(const struct block *it, bool writes)
{
    touches(it->address, it->bytes, writes);
    MUST(cuLaunchHostFunc(it->stream, nothing, NULL));
}

static void look_at_some(void)
{
    for (unsigned i = 0; i < LOOKS && alive_count; i++)
        touch(&block[alive[(allocations * 7919 + i * 104729) % alive_count]], /* writes */ false);
}

static void join(unsigned streams)
{
    CUevent event[STREAMS];
    for (unsigned i = 0; i < streams; i++) {
        MUST(cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
        MUST(cuEventRecord(event[i], stream[i]));
    }
    for (unsigned i = 0; i < streams; i++)
        for (unsigned k = 0; k < streams; k++)
            if (i != k)
                MUST(cuStreamWaitEvent(stream[i], event[k], 0));
    for (unsigned i = 0; i < streams; i++)
        MUST(cuEventDestroy(event[i]));
}

static void have(uint32_t number, uint64_t bytes, CUstream on)
{
    struct block *it = &block[number];
    *it = (struct block){(CUdeviceptr)(uintptr_t)segalloc_malloc_on(bytes, on), bytes, on};
    allocations++;
    refused += !it->address;
    if (!it->address)
        return;
    place[number] = alive_count;
    alive[alive_count++] = number;
    touch(it, /* writes */ true);
    look_at_some();
}

static void lose(uint32_t number)
{
    struct block *it = &block[number];
    if (!it->address)
        return;
    touch(it, /* writes */ false);
    MUST((CUresult)segalloc_free((void *)(uintptr_t)it->address));
    alive[place[number]] = alive[--alive_count];
    place[alive[place[number]]] = place[number];
    it->address = 0;
}

static void joined_every(unsigned streams, unsigned every)
{
    if (streams > 1 && allocations % every == 0)
        join(streams);
}

/* Requests with a cache for each layer, each of which is made anew a little larger at every step; between them
   short-lived blocks. */
static void grow_caches(unsigned streams, unsigned every)
{
    enum { CACHES = 24, STEPS = 60, LEAST = 700 << 10 };
    uint64_t random = 1, bytes[CACHES] = {0};
    uint32_t number[CACHES], next = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < CACHES; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            bool anew = !bytes[i] || random >> 59 == 0;
            uint32_t made = next++ % (2 * CACHES);
            while (block[made].address)
                made = next++ % (2 * CACHES);
            if (anew && bytes[i])
                lose(number[i]);
            uint64_t size = anew ? LEAST + (random >> 40 & 0xfffff) : bytes[i] + bytes[i] / 16 + 8192;
            have(made, size, stream[i % streams]);
            if (!anew)
                lose(number[i]);
            number[i] = made;
            bytes[i] = size;
            have(2 * CACHES, (random >> 44 & 0x3fffff) + 1, stream[(i + step) % streams]);
            lose(2 * CACHES);
            joined_every(streams, every);
        }
    }
    for (int i = 0; i < CACHES; i++)
        lose(number[i]);
}

static void play(FILE *file, unsigned streams, unsigned every)
{
    char line[256], action[32];
    unsigned long long pointer, bytes;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*[^,],%*[^,],%31[^,],%llx,%llu", action, &pointer, &bytes) != 3)
            continue;
        uint32_t number = (uint32_t)(pointer >> SLOT_SHIFT);
        must(number < BLOCKS, "more blocks at once than this program knows");
        if (!strcmp(action, "allocate"))
            have(number, bytes, stream[number % streams]);
        else
            lose(number);
        joined_every(streams, every);
    }
}

static unsigned number_of(int count, char **argument, int which, unsigned otherwise)
{
    return count > which ? (unsigned)strtoul(argument[which], NULL, 10) : otherwise;
}

int main(int count, char **argument)
{
    unsigned streams = number_of(count, argument, 2, 0), every = number_of(count, argument, 3, 40);
    void *symbol = dlsym(RTLD_DEFAULT, "segalloc_sim_touches"), *counts = dlsym(RTLD_DEFAULT, "segalloc_sim_hazards");
    segalloc_sim_hazards_fn hazards;
    must(streams && streams <= STREAMS && every, "usage: played FILE|caches STREAMS [JOIN]");
    must(symbol && counts, "this is for the simulator");
    memcpy(&touches, &symbol, sizeof touches);
    memcpy(&hazards, &counts, sizeof hazards);
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    for (unsigned i = 0; i < streams; i++)
        MUST(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    if (!strcmp(argument[1], "caches")) {
        grow_caches(streams, every);
    } else {
        FILE *file = fopen(argument[1], "r");
        must(file != NULL, "the file can't be read");
        play(file, streams, every);
        fclose(file);
    }
    MUST(cuCtxSynchronize());
    uint64_t aliased = statistic(0, "aliased_pages");
    printf(
        "allocations %llu, refused %llu, host waits %llu, pages at two addresses %llu, hazards %llu\n",
        (unsigned long long)allocations, (unsigned long long)refused, (unsigned long long)statistic(0, "host_waits"),
        (unsigned long long)aliased, (unsigned long long)hazards());
    must(aliased > 0, "nothing was put to the test");
    return hazards() > 0;
}
