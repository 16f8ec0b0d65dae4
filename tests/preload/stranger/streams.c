/* Streams, events and host functions: what ran before what. */
#include "stranger.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

static unsigned char *seen;
static char names[] = "1234.", order[64];
static atomic_uint steps;
static atomic_bool asked;

static void CUDART_CB step(void *name)
{
    order[atomic_fetch_add(&steps, 1)] = *(const char *)name;
}

/* Not before it was seen to be pending. */
static void CUDART_CB asked_step(void *name)
{
    while (!asked)
        usleep(100);
    step(name);
}

static void CUDART_CB slow_step(void *name)
{
    usleep(10000);
    step(name);
}

static void CUDART_CB old_step(cudaStream_t stream, cudaError_t status, void *name)
{
    (void)stream;
    if (status == cudaSuccess)
        step(name);
}

int main(void)
{
    cudaStream_t a, b;
    cudaEvent_t event, from, to;
    unsigned flags = 9;
    float ms = -1;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, 0));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaEventCreate(&from));
    MUST(cudaEventCreate(&to));
    MUST(cudaStreamGetFlags(a, &flags));
    FACT(flags == cudaStreamNonBlocking);

    SHOW(cudaEventQuery(event));
    MUST(cudaEventRecord(from, a));
    MUST(cudaLaunchHostFunc(a, asked_step, &names[0]));
    MUST(cudaEventRecord(event, a));
    SHOW(cudaEventQuery(event));
    SHOW(cudaStreamQuery(a));
    asked = true;
    SHOW(cudaGetLastError());
    MUST(cudaStreamWaitEvent(b, event, 0));
    MUST(cudaLaunchHostFunc(b, step, &names[1]));
    MUST(cudaStreamAddCallback(b, old_step, &names[2], 0));
    MUST(cudaEventRecord(event, b));
    MUST(cudaStreamWaitEvent(a, event, 0));
    MUST(cudaLaunchHostFunc(a, step, &names[3]));
    MUST(cudaEventRecord(to, a));
    MUST(cudaDeviceSynchronize());
    printf("order %s\n", order);
    SHOW(cudaEventQuery(event));
    MUST(cudaEventElapsedTime(&ms, from, to));
    FACT(ms >= 0);

    /* memory freed while a stream still writes it: the free waits, the next owner sees its own bytes only */
    unsigned char *p, *q, byte = 0;
    unsigned wrong = 0;
    MUST(cudaMallocHost((void **)&seen, 4096));
    for (int i = 0; i < 50; i++) {
        MUST(cudaMalloc((void **)&p, 1 << 20));
        steps = 8; /* before the step: nothing else orders the two */
        MUST(cudaLaunchHostFunc(a, slow_step, &names[4]));
        MUST(cudaMemsetAsync(p, 0xdd, 1 << 20, a));
        MUST(cudaFree(p));
        MUST(cudaMalloc((void **)&q, 1 << 20));
        MUST(cudaMemset(q, i, 1 << 20));
        MUST(cudaDeviceSynchronize());
        MUST(cudaMemcpy(&byte, q + 12345, 1, cudaMemcpyDeviceToHost));
        wrong += byte != i;
        MUST(cudaFree(q));
    }
    printf("%u wrong after a free under way\n", wrong);

    SHOW(cudaEventDestroy(event));
    SHOW(cudaEventDestroy(from));
    SHOW(cudaEventDestroy(to));
    SHOW(cudaStreamDestroy(a));
    SHOW(cudaStreamDestroy(b));
    SHOW(cudaFreeHost(seen));
    SHOW(cudaStreamSynchronize(0));
    SHOW(cudaGetLastError());
    return 0;
}
