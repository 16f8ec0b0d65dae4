/* A solver over two devices, a thread each. Halves of vectors have a border that each reads from its neighbour. The host
   adds up partial results in managed memory. Scratch is allocated and freed at every step while the neighbour may still
   read. */
#include <pthread.h>

#include "stranger.h"

enum { DEVICES = 2, BYTES = 1 << 20, BORDER = 4096, STEPS = 30 };

static struct part {
    int device;
    cudaStream_t stream;
    cudaEvent_t ready, read;
    unsigned char *half; /* a border of the neighbour's, and its own */
    unsigned wrong;
} part[DEVICES];

static unsigned char *total;
static pthread_barrier_t step_over;

static void *work(void *argument)
{
    struct part *own = argument, *other = &part[1 - own->device];
    MUST(cudaSetDevice(own->device));
    for (int step = 0; step < STEPS; step++) {
        unsigned char *scratch, value = (unsigned char)(step * DEVICES + own->device + 1), byte = 0;
        size_t bytes = BYTES / 2 + (size_t)(mix((unsigned)step) % BYTES);
        MUST(cudaMalloc((void **)&scratch, bytes));
        MUST(cudaMemsetAsync(scratch, value, bytes, own->stream));
        MUST(cudaMemcpyAsync(own->half + BORDER, scratch, BYTES / 2, cudaMemcpyDeviceToDevice, own->stream));
        MUST(cudaMemcpyAsync(&total[own->device], scratch + bytes - 1, 1, cudaMemcpyDefault, own->stream));
        MUST(cudaEventRecord(own->ready, own->stream));
        pthread_barrier_wait(&step_over);
        MUST(cudaStreamWaitEvent(own->stream, other->ready, 0));
        MUST(cudaMemcpyPeerAsync(own->half, own->device, other->half + BORDER, other->device, BORDER, own->stream));
        MUST(cudaEventRecord(own->read, own->stream));
        MUST(cudaFree(scratch));
        pthread_barrier_wait(&step_over);
        MUST(cudaStreamWaitEvent(own->stream, other->read, 0));
        MUST(cudaMemcpyAsync(&byte, own->half + BORDER - 1, 1, cudaMemcpyDeviceToHost, own->stream));
        MUST(cudaStreamSynchronize(own->stream));
        own->wrong += byte != (unsigned char)(step * DEVICES + other->device + 1);
        own->wrong += total[own->device] != value;
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[DEVICES];
    int can = 0;
    need_devices(DEVICES);
    MUST(cudaMallocManaged((void **)&total, DEVICES, cudaMemAttachGlobal));
    pthread_barrier_init(&step_over, NULL, DEVICES);
    for (int i = 0; i < DEVICES; i++) {
        part[i].device = i;
        MUST(cudaSetDevice(i));
        MUST(cudaDeviceCanAccessPeer(&can, i, 1 - i));
        if (can)
            SHOW(cudaDeviceEnablePeerAccess(1 - i, 0));
        MUST(cudaStreamCreateWithFlags(&part[i].stream, cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&part[i].ready, cudaEventDisableTiming));
        MUST(cudaEventCreateWithFlags(&part[i].read, cudaEventDisableTiming));
        MUST(cudaMalloc((void **)&part[i].half, BORDER + BYTES));
    }
    for (int i = 0; i < DEVICES; i++)
        pthread_create(&thread[i], NULL, work, &part[i]);
    for (int i = 0; i < DEVICES; i++)
        pthread_join(thread[i], NULL);
    printf("%u wrong, %u wrong\n", part[0].wrong, part[1].wrong);
    for (int i = 0; i < DEVICES; i++) { /* with the other one current */
        MUST(cudaSetDevice(1 - i));
        SHOW(cudaFree(part[i].half));
        SHOW(cudaStreamDestroy(part[i].stream));
        MUST(cudaEventDestroy(part[i].ready));
        MUST(cudaEventDestroy(part[i].read));
    }
    SHOW(cudaFree(total));
    return 0;
}
