/* Events in every state: never recorded, recorded twice, destroyed while pending, queried by another thread. */
#include "stranger.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static cudaEvent_t shared;
static atomic_int let_through;

/* Work that ends once as many have been let through. */
static void CUDART_CB gate(void *number)
{
    while (let_through < (int)(intptr_t)number)
        usleep(100);
}

static void *watch(void *unused)
{
    cudaError_t result;
    (void)unused;
    MUST(cudaSetDevice(0));
    do {
        result = cudaEventQuery(shared);
        let_through = 2; /* it was asked about while it was pending */
    } while (result == cudaErrorNotReady);
    return (void *)(intptr_t)result;
}

int main(void)
{
    cudaStream_t a, b;
    cudaEvent_t event, late, many[50];
    unsigned char *p, *q, byte = 0;
    pthread_t thread;
    void *seen;
    unsigned wrong = 0;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&late, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&shared, cudaEventDisableTiming));
    SHOW(cudaEventSynchronize(event));
    SHOW(cudaStreamWaitEvent(b, event, 0));

    /* recorded again while a stream waits for the first record: the wait is for that one */
    MUST(cudaMalloc((void **)&p, MiB));
    MUST(cudaMemsetAsync(p, 1, MiB, a));
    MUST(cudaEventRecord(event, a));
    MUST(cudaStreamWaitEvent(b, event, 0));
    MUST(cudaLaunchHostFunc(a, gate, (void *)1));
    MUST(cudaEventRecord(event, a));
    MUST(cudaMemcpyAsync(&byte, p, 1, cudaMemcpyDeviceToHost, b));
    MUST(cudaStreamSynchronize(b));
    SHOW(cudaEventQuery(event));
    let_through = 1;
    FACT(byte == 1);
    MUST(cudaEventSynchronize(event));
    SHOW(cudaEventQuery(event));

    /* destroyed while pending: what waits for it still waits */
    for (int i = 0; i < 50; i++) {
        MUST(cudaEventCreateWithFlags(&many[i], cudaEventDisableTiming));
        MUST(cudaMalloc((void **)&q, 50000));
        MUST(cudaMemsetAsync(q, i, 50000, a));
        MUST(cudaEventRecord(many[i], a));
        MUST(cudaStreamWaitEvent(b, many[i], 0));
        MUST(cudaEventDestroy(many[i]));
        MUST(cudaMemcpyAsync(&byte, q + 49999, 1, cudaMemcpyDeviceToHost, b));
        MUST(cudaStreamSynchronize(b));
        wrong += byte != i;
        MUST(cudaFree(q));
    }
    printf("%u wrong\n", wrong);

    MUST(cudaLaunchHostFunc(a, gate, (void *)2));
    MUST(cudaEventRecord(shared, a));
    pthread_create(&thread, NULL, watch, NULL);
    pthread_join(thread, &seen);
    printf("seen %d\n", (int)(intptr_t)seen);
    MUST(cudaEventRecord(late, 0));
    SHOW(cudaEventSynchronize(late));
    SHOW(cudaEventDestroy(late));
    SHOW(cudaEventDestroy(event));
    SHOW(cudaEventDestroy(shared));
    SHOW(cudaFree(p));
    SHOW(cudaStreamDestroy(a));
    SHOW(cudaStreamDestroy(b));
    SHOW(cudaGetLastError());
    return 0;
}
