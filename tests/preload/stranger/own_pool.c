/* An array library with a pool of its own above cudaMalloc. Chunks are cached by size for each stream. A freed chunk serves
   its stream again at once, and another stream after an event. When memory runs out the cache is given back and the
   request made again. */
#include "stranger.h"

enum { STREAMS = 3, KEPT = 4096, ROUNDS = 400, LIVE = 48 };
#define ROOM (256 * MiB) /* which that fills; what a device has beyond is taken first */

struct chunk {
    unsigned char *at;
    size_t bytes;
    int stream;
};

static struct {
    cudaStream_t stream[STREAMS];
    cudaEvent_t left[STREAMS]; /* recorded when a chunk goes to another stream */
    struct chunk kept[KEPT];
    int count;
    size_t held;
    unsigned given_back, other_errors;
} pool;

static void give_back(void)
{
    MUST(cudaDeviceSynchronize());
    for (int i = 0; i < pool.count; i++) {
        MUST(cudaFree(pool.kept[i].at));
        pool.held -= pool.kept[i].bytes;
    }
    pool.given_back += pool.count > 0;
    pool.count = 0;
}

static struct chunk take(size_t bytes, int stream)
{
    struct chunk chunk = {.bytes = (bytes + 511) / 512 * 512, .stream = stream};
    for (int own = 1; own >= 0; own--) {
        for (int i = pool.count - 1; i >= 0; i--) {
            struct chunk kept = pool.kept[i];
            if (kept.bytes != chunk.bytes || (kept.stream == stream) != own)
                continue;
            pool.kept[i] = pool.kept[--pool.count];
            if (!own) {
                MUST(cudaEventRecord(pool.left[kept.stream], pool.stream[kept.stream]));
                MUST(cudaStreamWaitEvent(pool.stream[stream], pool.left[kept.stream], 0));
            }
            kept.stream = stream;
            return kept;
        }
    }
    cudaError_t error = cudaMalloc((void **)&chunk.at, chunk.bytes);
    if (error == cudaErrorMemoryAllocation) {
        pool.other_errors += cudaGetLastError() != cudaErrorMemoryAllocation;
        give_back();
        error = cudaMalloc((void **)&chunk.at, chunk.bytes);
    }
    MUST(error);
    pool.held += chunk.bytes;
    return chunk;
}

static void put(struct chunk chunk)
{
    if (pool.count == KEPT)
        give_back();
    pool.kept[pool.count++] = chunk;
}

/* Whether every byte of a few places of the chunk is what its owner wrote. */
static unsigned wrong_in(struct chunk chunk, unsigned char value)
{
    unsigned char byte[2] = {0};
    cudaStream_t stream = pool.stream[chunk.stream];
    MUST(cudaMemcpyAsync(&byte[0], chunk.at, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaMemcpyAsync(&byte[1], chunk.at + chunk.bytes - 1, 1, cudaMemcpyDeviceToHost, stream));
    MUST(cudaStreamSynchronize(stream));
    return byte[0] != value || byte[1] != value;
}

int main(void)
{
    struct chunk live[LIVE] = {{0}};
    unsigned char value[LIVE] = {0};
    unsigned wrong = 0, state = 1;
    size_t available, total;
    void *beyond = NULL;
    MUST(cudaMemGetInfo(&available, &total));
    if (available > 2 * ROOM)
        MUST(cudaMalloc(&beyond, available - ROOM));
    for (int i = 0; i < STREAMS; i++) {
        MUST(cudaStreamCreateWithFlags(&pool.stream[i], cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&pool.left[i], cudaEventDisableTiming));
    }
    for (int i = 0; i < ROUNDS; i++) {
        unsigned random = mix(state++);
        int slot = (int)(random % LIVE);
        if (live[slot].at) {
            wrong += wrong_in(live[slot], value[slot]);
            put(live[slot]);
        }
        live[slot] = take(MiB / 4 + (random >> 8) % (7 * MiB / 2), (int)(random >> 4) % STREAMS);
        value[slot] = (unsigned char)(i + 1);
        MUST(cudaMemsetAsync(live[slot].at, value[slot], live[slot].bytes, pool.stream[live[slot].stream]));
    }
    for (int i = 0; i < LIVE; i++) {
        if (!live[i].at)
            continue;
        wrong += wrong_in(live[i], value[i]);
        put(live[i]);
    }
    printf("%u wrong\n", wrong);
    FACT(pool.given_back > 0);
    FACT(pool.other_errors == 0);
    give_back();
    FACT(pool.held == 0);
    MUST(cudaFree(beyond));
    for (int i = 0; i < STREAMS; i++) {
        SHOW(cudaEventDestroy(pool.left[i]));
        SHOW(cudaStreamDestroy(pool.stream[i]));
    }
    return 0;
}
