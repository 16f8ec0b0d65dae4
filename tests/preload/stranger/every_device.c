/* One plan a device: buffers, a stream, pinned memory. Work goes to all devices from one thread, then one thread a
   device, and memory is freed while another device is current. */
#include "stranger.h"

#include <pthread.h>

enum { MOST = 8, COUNT = 100000, ROUNDS = 30 };

struct plan {
    int device;
    cudaStream_t stream;
    unsigned *host, *a, *b;
    unsigned long long sum;
};

static void submit(struct plan *plan, int round)
{
    size_t bytes = COUNT * sizeof(unsigned);
    for (unsigned i = 0; i < COUNT; i++)
        plan->host[i] = i * (unsigned)(plan->device + 1) + (unsigned)round;
    MUST(cudaMalloc((void **)&plan->a, bytes));
    MUST(cudaMalloc((void **)&plan->b, bytes));
    MUST(cudaMemcpyAsync(plan->a, plan->host, bytes, cudaMemcpyHostToDevice, plan->stream));
    MUST(cudaMemcpyAsync(plan->b, plan->a, bytes, cudaMemcpyDeviceToDevice, plan->stream));
    MUST(cudaMemsetAsync(plan->a, 0, bytes, plan->stream));
    MUST(cudaMemcpyAsync(plan->host, plan->b, bytes, cudaMemcpyDeviceToHost, plan->stream));
}

static void collect(struct plan *plan)
{
    MUST(cudaStreamSynchronize(plan->stream));
    for (unsigned i = 0; i < COUNT; i++)
        plan->sum = plan->sum * 31 + plan->host[i];
}

static void *alone(void *data)
{
    struct plan *plan = data;
    MUST(cudaSetDevice(plan->device));
    for (int round = 0; round < ROUNDS; round++) {
        submit(plan, round);
        MUST(cudaFree(plan->a)); /* with the copies queued */
        collect(plan);
        MUST(cudaFree(plan->b));
    }
    return NULL;
}

int main(void)
{
    struct plan plan[MOST] = {{0}};
    pthread_t thread[MOST];
    int devices = 0;
    MUST(cudaGetDeviceCount(&devices));
    devices = devices < MOST ? devices : MOST;
    for (int i = 0; i < devices; i++) {
        plan[i].device = i;
        MUST(cudaSetDevice(i));
        MUST(cudaStreamCreate(&plan[i].stream));
        MUST(cudaMallocHost((void **)&plan[i].host, COUNT * sizeof(unsigned)));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < devices; i++) {
            MUST(cudaSetDevice(i));
            submit(&plan[i], round);
        }
        for (int i = 0; i < devices; i++) {
            MUST(cudaSetDevice((i + 1) % devices));
            MUST(cudaFree(plan[i].a));
            collect(&plan[i]);
            MUST(cudaFree(plan[i].b));
        }
    }
    for (int i = 0; i < devices; i++)
        pthread_create(&thread[i], NULL, alone, &plan[i]);
    for (int i = 0; i < devices; i++) {
        pthread_join(thread[i], NULL);
        printf("device %d: %llx\n", i, plan[i].sum);
        MUST(cudaSetDevice(i));
        SHOW(cudaStreamDestroy(plan[i].stream));
        SHOW(cudaFreeHost(plan[i].host));
        SHOW(cudaDeviceSynchronize());
    }
    return 0;
}
