/* A large array in pieces, each on a stream of its own, copied both ways and timed; the host looks on meanwhile, and
   the buffers are made and freed anew in each round. */
#include "stranger.h"

enum { STREAMS = 4, PIECE = 300000, ROUNDS = 12 };

static void round_of(cudaStream_t *stream, unsigned char *in, unsigned char *out, int round)
{
    cudaEvent_t start, stop, done[STREAMS];
    unsigned char *device;
    float milliseconds = -1;
    int looked = 0, busy = STREAMS;
    MUST(cudaEventCreate(&start));
    MUST(cudaEventCreateWithFlags(&stop, cudaEventBlockingSync));
    MUST(cudaMalloc((void **)&device, STREAMS * PIECE));
    fill(in, STREAMS * PIECE, (unsigned)round);
    memset(out, 0, STREAMS * PIECE);
    MUST(cudaEventRecord(start, 0));
    for (int i = 0; i < STREAMS; i++) {
        unsigned char *piece = device + i * PIECE;
        MUST(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
        MUST(cudaMemcpyAsync(piece, in + i * PIECE, PIECE, cudaMemcpyHostToDevice, stream[i]));
        MUST(cudaMemsetAsync(piece, i, 100, stream[i]));
        MUST(cudaMemcpyAsync(out + i * PIECE, piece, PIECE, cudaMemcpyDeviceToHost, stream[i]));
        MUST(cudaEventRecord(done[i], stream[i]));
    }
    for (int i = 0; i < STREAMS; i++)
        MUST(cudaStreamWaitEvent(0, done[i], 0));
    MUST(cudaEventRecord(stop, 0));
    while (busy) {
        busy = 0;
        for (int i = 0; i < STREAMS; i++)
            busy += cudaEventQuery(done[i]) == cudaErrorNotReady;
        looked++;
    }
    (void)cudaGetLastError(); /* Whether a query came before its work had ended is chance. */
    MUST(cudaEventSynchronize(stop));
    MUST(cudaEventElapsedTime(&milliseconds, start, stop));
    for (int i = 0; i < STREAMS; i++) {
        memset(in + i * PIECE, i, 100);
        MUST(cudaEventDestroy(done[i]));
    }
    FACT(memcmp(in, out, STREAMS * PIECE) == 0 && milliseconds >= 0 && looked > 0);
    MUST(cudaFree(device));
    MUST(cudaEventDestroy(start));
    MUST(cudaEventDestroy(stop));
}

int main(void)
{
    cudaStream_t stream[STREAMS];
    unsigned char *in, *out;
    int least, greatest;
    MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int i = 0; i < STREAMS; i++)
        MUST(cudaStreamCreateWithPriority(&stream[i], cudaStreamNonBlocking, i % 2 ? least : greatest));
    MUST(cudaHostAlloc((void **)&in, STREAMS * PIECE, cudaHostAllocDefault));
    MUST(cudaMallocHost((void **)&out, STREAMS * PIECE));
    for (int round = 0; round < ROUNDS; round++)
        round_of(stream, in, out, round);
    SHOW(cudaFreeHost(in));
    SHOW(cudaFreeHost(out));
    for (int i = 0; i < STREAMS; i++)
        SHOW(cudaStreamDestroy(stream[i]));
    SHOW(cudaGetLastError());
    return 0;
}
