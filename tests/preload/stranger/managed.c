/* Managed memory and plain memory in turns: attached to streams, prefetched, advised, freed by the same call. */
#include "stranger.h"

#include <pthread.h>

enum { TASKS = 24, WORKERS = 3 };

static cudaStream_t stream[WORKERS + 1];

static void task(int worker, int number)
{
    size_t bytes = 10000 + mix((unsigned)number) % 400000;
    unsigned char *managed, *plain;
    MUST(cudaMallocManaged((void **)&managed, bytes, number % 2 ? cudaMemAttachGlobal : cudaMemAttachHost));
    MUST(cudaMalloc((void **)&plain, bytes));
    MUST(cudaStreamAttachMemAsync(stream[worker], managed, 0, cudaMemAttachSingle));
    MUST(cudaStreamSynchronize(stream[worker]));
    fill(managed, bytes, (unsigned)number);
    unsigned before = checksum(managed, bytes);
    MUST(cudaMemcpyAsync(plain, managed, bytes, cudaMemcpyDefault, stream[worker]));
    MUST(cudaMemsetAsync(managed, 0, bytes, stream[worker]));
    MUST(cudaMemcpyAsync(managed, plain, bytes, cudaMemcpyDefault, stream[worker]));
    MUST(cudaStreamSynchronize(stream[worker]));
    if (checksum(managed, bytes) != before)
        printf("task %d: 1 wrong\n", number);
    MUST(cudaFree(number % 3 ? managed : plain));
    MUST(cudaFree(number % 3 ? plain : managed));
}

static void *work(void *data)
{
    int worker = (int)(intptr_t)data;
    MUST(cudaSetDevice(0));
    for (int i = worker; i < TASKS; i += WORKERS)
        task(worker, i);
    return NULL;
}

int main(void)
{
    pthread_t thread[WORKERS];
    unsigned char *managed;
    struct cudaPointerAttributes attributes;
    for (int i = 0; i <= WORKERS; i++)
        MUST(cudaStreamCreate(&stream[i]));
    for (intptr_t i = 0; i < WORKERS; i++)
        pthread_create(&thread[i], NULL, work, (void *)i);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(thread[i], NULL);
    MUST(cudaMallocManaged((void **)&managed, 3 * MiB, cudaMemAttachGlobal));
    MUST(cudaPointerGetAttributes(&attributes, managed));
    FACT(attributes.type == cudaMemoryTypeManaged && attributes.devicePointer == managed);
    SHOW(cudaFree(managed + 4096));
    SHOW(cudaFree(managed));
    SHOW(cudaFree(managed));
    SHOW(cudaMallocManaged((void **)&managed, 0, cudaMemAttachGlobal));
    SHOW(cudaMallocManaged((void **)&managed, MiB, 17));
    SHOW(cudaGetLastError());
    for (int i = 0; i <= WORKERS; i++)
        SHOW(cudaStreamDestroy(stream[i]));
    return 0;
}
