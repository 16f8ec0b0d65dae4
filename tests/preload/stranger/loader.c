/* Batches of uneven size, read into pinned memory, copied ahead on a stream of their own and freed once they were used;
   a function of the host in the copying stream says which buffer may be filled again. */
#include <stdatomic.h>

#include "stranger.h"

enum { BUFFERS = 3, BATCHES = 60, MOST = 5 << 20 };

struct buffer {
    unsigned char *host, *on_device;
    size_t bytes;
    cudaEvent_t copied;
    atomic_int empty;
};

static void CUDART_CB emptied(void *user)
{
    atomic_store((atomic_int *)user, 1);
}

static size_t bytes_of(int batch)
{
    return 1 + mix((unsigned)batch) % MOST;
}

static void load(struct buffer *buffer, int batch, cudaStream_t copy)
{
    if (!atomic_load(&buffer->empty))
        MUST(cudaStreamSynchronize(copy));
    FACT(atomic_exchange(&buffer->empty, 0) == 1);
    buffer->bytes = bytes_of(batch);
    fill(buffer->host, buffer->bytes < 4096 ? buffer->bytes : 4096, (unsigned)batch);
    buffer->host[buffer->bytes - 1] = (unsigned char)batch;
    MUST(cudaMalloc((void **)&buffer->on_device, buffer->bytes));
    MUST(cudaMemcpyAsync(buffer->on_device, buffer->host, buffer->bytes, cudaMemcpyHostToDevice, copy));
    MUST(cudaEventRecord(buffer->copied, copy));
    MUST(cudaLaunchHostFunc(copy, emptied, &buffer->empty));
}

/* "Trains" on a batch: returns its last byte, by way of memory that is gone right after. */
static unsigned char use(struct buffer *buffer, cudaStream_t compute)
{
    unsigned char *scratch, last = 0;
    MUST(cudaStreamWaitEvent(compute, buffer->copied, 0));
    MUST(cudaMalloc((void **)&scratch, buffer->bytes));
    MUST(cudaMemcpyAsync(scratch, buffer->on_device, buffer->bytes, cudaMemcpyDeviceToDevice, compute));
    MUST(cudaMemcpyAsync(&last, scratch + buffer->bytes - 1, 1, cudaMemcpyDeviceToHost, compute));
    MUST(cudaFree(buffer->on_device)); /* waits */
    MUST(cudaStreamSynchronize(compute));
    MUST(cudaFree(scratch));
    return last;
}

int main(void)
{
    cudaStream_t copy, compute;
    struct buffer buffer[BUFFERS];
    unsigned char *registered = malloc(MOST);
    unsigned wrong = 0;
    MUST(cudaStreamCreateWithPriority(&copy, cudaStreamNonBlocking, 0));
    MUST(cudaStreamCreate(&compute));
    for (int i = 0; i < BUFFERS; i++) {
        if (i < BUFFERS - 1)
            MUST(cudaHostAlloc((void **)&buffer[i].host, MOST, cudaHostAllocDefault));
        MUST(cudaEventCreateWithFlags(&buffer[i].copied, cudaEventDisableTiming | cudaEventBlockingSync));
        atomic_init(&buffer[i].empty, 1);
    }
    SHOW(cudaHostRegister(registered, MOST, cudaHostRegisterDefault));
    buffer[BUFFERS - 1].host = registered;
    for (int batch = 0; batch < BATCHES + BUFFERS - 1; batch++) {
        if (batch < BATCHES)
            load(&buffer[batch % BUFFERS], batch, copy);
        int used = batch - (BUFFERS - 1);
        if (used >= 0)
            wrong += use(&buffer[used % BUFFERS], compute) != (unsigned char)used;
    }
    printf("%u wrong\n", wrong);
    SHOW(cudaHostUnregister(registered));
    for (int i = 0; i < BUFFERS; i++) {
        if (i < BUFFERS - 1)
            SHOW(cudaFreeHost(buffer[i].host));
        SHOW(cudaEventDestroy(buffer[i].copied));
    }
    free(registered);
    SHOW(cudaStreamDestroy(copy));
    SHOW(cudaStreamDestroy(compute));
    return 0;
}
