/* Work that ends in a function of the host, which wakes another thread; that one goes on with the device, allocates and
   frees. Both kinds of such functions. */
#include "stranger.h"

#include <pthread.h>

enum { JOBS = 8, BYTES = 250000 };

struct job {
    int number;
    cudaStream_t stream;
    unsigned char *host, *device;
    unsigned sum;
    int ready;
    pthread_t thread;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void wake(struct job *job)
{
    pthread_mutex_lock(&mutex);
    job->ready++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void CUDART_CB by_host_function(void *data)
{
    wake(data);
}

static void CUDART_CB by_callback(cudaStream_t stream, cudaError_t status, void *data)
{
    struct job *job = data;
    if (stream == job->stream && status == cudaSuccess)
        wake(job);
}

static void wait_for(struct job *job, int times)
{
    pthread_mutex_lock(&mutex);
    while (job->ready < times)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void *postprocess(void *data)
{
    struct job *job = data;
    unsigned char *extra;
    wait_for(job, 1);
    job->sum = checksum(job->host, BYTES);
    MUST(cudaMalloc((void **)&extra, BYTES));
    MUST(cudaMemcpyAsync(extra, job->device, BYTES, cudaMemcpyDeviceToDevice, job->stream));
    MUST(cudaMemsetAsync(job->device, 0, BYTES, job->stream));
    MUST(cudaFree(job->device));
    MUST(cudaMemcpyAsync(job->host, extra, BYTES, cudaMemcpyDeviceToHost, job->stream));
    MUST(cudaStreamAddCallback(job->stream, by_callback, job, 0));
    wait_for(job, 2);
    job->sum ^= checksum(job->host, BYTES);
    MUST(cudaFree(extra));
    return NULL;
}

int main(void)
{
    struct job job[JOBS] = {{0}};
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < JOBS; i++) {
            struct job *now = &job[i];
            now->number = i;
            now->ready = 0;
            MUST(cudaStreamCreate(&now->stream));
            MUST(cudaHostAlloc((void **)&now->host, BYTES, cudaHostAllocPortable));
            MUST(cudaMalloc((void **)&now->device, BYTES));
            fill(now->host, BYTES, (unsigned)(round * JOBS + i));
            MUST(cudaMemcpyAsync(now->device, now->host, BYTES, cudaMemcpyHostToDevice, now->stream));
            MUST(cudaLaunchHostFunc(now->stream, by_host_function, now));
            pthread_create(&now->thread, NULL, postprocess, now);
        }
        for (int i = 0; i < JOBS; i++) {
            pthread_join(job[i].thread, NULL);
            FACT(job[i].sum == 0);
            MUST(cudaStreamDestroy(job[i].stream));
            MUST(cudaFreeHost(job[i].host));
        }
    }
    SHOW(cudaGetLastError());
    return 0;
}
