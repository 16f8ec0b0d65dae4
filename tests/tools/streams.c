/* One or more threads take and free memory on streams of their own with the library's own calls, give the streams work,
   and let them wait for one another: THREADS ROUNDS STREAMS LARGEST (bytes). Streams come and go; now and then they ask
   how much there is. Running out is borne. With `left` as a fifth argument some blocks are freed as a step of another
   stream, when their own, which has waited for a word of memory, is destroyed. */
#include "cuda_abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 24, THREADS = 8, STREAMS = 16 };

static CUresult (*set_current)(CUcontext);
static CUresult (*create_stream)(CUstream *, unsigned);
static CUresult (*destroy_stream)(CUstream);
static CUresult (*fill)(CUdeviceptr, unsigned char, size_t, CUstream);
static CUresult (*create_event)(CUevent *, unsigned);
static CUresult (*record_event)(CUevent, CUstream);
static CUresult (*wait_event)(CUstream, CUevent, unsigned);
static CUresult (*query_event)(CUevent);
static CUresult (*synchronize)(CUstream);
static CUresult (*info)(size_t *, size_t *);
static CUresult (*wait_value)(CUstream, CUdeviceptr, uint32_t, unsigned);
static CUresult (*allocate)(CUdeviceptr *, size_t);
static CUresult (*free_async)(CUdeviceptr, CUstream);
static void *(*take)(size_t, void *);
static int (*give)(void *);
static int (*use_on)(void *, void *);
static CUcontext context;
static long rounds, streams;
static size_t largest;
static CUdeviceptr word; /* 0: no block is left behind */

static void find(void *function, void *from, const char *name)
{
    *(void **)function = dlsym(from, name);
    if (!*(void **)function) {
        fprintf(stderr, "streams: no %s\n", name);
        exit(3);
    }
}

static void check(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "streams: %d\n", (int)result);
        exit(4);
    }
}

static void leave_behind(CUstream next, CUevent event)
{
    CUstream stream;
    check(create_stream(&stream, 1 /* non-blocking */));
    check(wait_value(stream, word, 0, 0 /* for that much at least */));
    void *block = take(largest, stream);
    if (block) {
        check(fill((CUdeviceptr)block, 1, largest, stream));
        check(record_event(event, stream));
        check(wait_event(next, event, 0));
    }
    check(destroy_stream(stream));
    if (block)
        check(free_async((CUdeviceptr)block, next));
}

static void *work(void *argument)
{
    void *block[BLOCKS] = {0};
    size_t size[BLOCKS] = {0};
    CUstream stream[STREAMS];
    CUevent event;
    unsigned random = (unsigned)(size_t)argument * 2654435761u + 1;
    check(set_current(context));
    check(create_event(&event, 2 /* no timing */));
    for (long i = 0; i < streams; i++)
        check(create_stream(&stream[i], 1 /* non-blocking */));
    for (long i = 0; i < rounds; i++) {
        random = random * 1664525u + 1013904223u;
        long at = (random >> 16) % BLOCKS, on = (random >> 21) % streams, other = (random >> 25) % streams;
        if (block[at])
            give(block[at]);
        size[at] = (random >> 8) % 5 == 0 ? 1 + (random >> 12) % 60000 : 1 + ((size_t)random << 7) % largest;
        block[at] = take(size[at], stream[on]);
        if (!block[at]) {
            for (int b = 0; b < BLOCKS; b += 2) {
                if (block[b])
                    give(block[b]);
                block[b] = NULL;
            }
            continue;
        }
        check(fill((CUdeviceptr)block[at], 1, size[at] < 4096 ? size[at] : 4096, stream[on]));
        if (random >> 9 & 1) {
            check(record_event(event, stream[on]));
            check(wait_event(stream[other], event, 0));
            check(fill((CUdeviceptr)block[at], 2, 512 < size[at] ? 512 : size[at], stream[other]));
            use_on(block[at], stream[other]);
        }
        size_t free_bytes, total_bytes;
        if (i % 13 == 0)
            (void)query_event(event);
        if (i % 29 == 0)
            check(info(&free_bytes, &total_bytes));
        if (i % 61 == 0)
            check(synchronize(stream[other]));
        if (word && i % 31 == 0)
            leave_behind(stream[on], event);
        if (i % 97 == 0) {
            check(destroy_stream(stream[other]));
            check(create_stream(&stream[other], 1));
        }
    }
    for (int b = 0; b < BLOCKS; b++)
        if (block[b])
            give(block[b]);
    return NULL;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    bool left = argc == 6 && strcmp(argv[5], "left") == 0;
    if ((argc != 5 && !left) || !driver) {
        fputs("usage: streams THREADS ROUNDS STREAMS LARGEST [left]\n", stderr);
        return 2;
    }
    long threads = atol(argv[1]) < THREADS ? atol(argv[1]) : THREADS;
    rounds = atol(argv[2]);
    streams = atol(argv[3]) < STREAMS ? atol(argv[3]) : STREAMS;
    largest = (size_t)atol(argv[4]);
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    find(&init, driver, "cuInit");
    find(&retain, driver, "cuDevicePrimaryCtxRetain");
    find(&set_current, driver, "cuCtxSetCurrent");
    find(&create_stream, driver, "cuStreamCreate");
    find(&destroy_stream, driver, "cuStreamDestroy_v2");
    find(&fill, driver, "cuMemsetD8Async");
    find(&create_event, driver, "cuEventCreate");
    find(&record_event, driver, "cuEventRecord");
    find(&wait_event, driver, "cuStreamWaitEvent");
    find(&query_event, driver, "cuEventQuery");
    find(&synchronize, driver, "cuStreamSynchronize");
    find(&info, driver, "cuMemGetInfo_v2");
    find(&wait_value, driver, "cuStreamWaitValue32_v2");
    find(&allocate, driver, "cuMemAlloc_v2");
    find(&free_async, driver, "cuMemFreeAsync");
    find(&take, RTLD_DEFAULT, "segalloc_malloc_on");
    find(&give, RTLD_DEFAULT, "segalloc_free");
    find(&use_on, RTLD_DEFAULT, "segalloc_record_stream");
    check(init(0));
    check(retain(&context, 0));
    check(set_current(context));
    if (left)
        check(allocate(&word, 4));
    pthread_t thread[THREADS];
    for (long i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, (void *)(size_t)i) != 0)
            return 5;
    for (long i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
