/* A CUDA runtime just large enough for the trainer: one stream whose work a thread runs in order, memory that is filled
   with NaNs when it is taken and, in stream order, when it is freed. So a read before a write, a use after a free and a
   host that looks at device memory all end in a wrong loss.
   STUB_LIMIT=BYTES bounds memory, STUB_TRACE=FILE writes each call as a row "allocate|free,SIZE", STUB_POISON=0 leaves
   memory untouched; STUB_POISON=unreachable keeps the host from it, as a GPU does. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, HEADER = 4096, ALIGNMENT = 512, MAP_FROM = 1 << 20, QUEUE = 1024,
       NAN_BYTE = 0xff };

struct work {
    void (*run)(void *);
    void *argument;
};

struct block {
    size_t bytes;
    bool mapped;
};

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wanted, idle;
    struct work queue[QUEUE];
    unsigned long submitted, done;
    bool started, poison, unreachable, hurry;
    size_t live, limit;
    FILE *trace;
} stub = {.lock = PTHREAD_MUTEX_INITIALIZER, .wanted = PTHREAD_COND_INITIALIZER,
          .idle = PTHREAD_COND_INITIALIZER};

/* For tests in the same process. */
EXPORT void stub_set_limit(size_t limit);
void stub_set_limit(size_t limit)
{
    pthread_mutex_lock(&stub.lock);
    stub.limit = limit;
    pthread_mutex_unlock(&stub.lock);
}

/* Works only when the queue is half full or the host waits: the host is far ahead, and few threads are woken. */
static void *run_queue(void *unused)
{
    pthread_mutex_lock(&stub.lock);
    for (;;) {
        while (!stub.hurry || stub.done == stub.submitted)
            pthread_cond_wait(&stub.wanted, &stub.lock);
        while (stub.done != stub.submitted) {
            struct work work = stub.queue[stub.done % QUEUE];
            pthread_mutex_unlock(&stub.lock);
            work.run(work.argument);
            pthread_mutex_lock(&stub.lock);
            stub.done++;
        }
        stub.hurry = false;
        pthread_cond_broadcast(&stub.idle);
    }
    return unused;
}

static void hurry(void)
{
    if (!stub.hurry)
        pthread_cond_signal(&stub.wanted);
    stub.hurry = true;
}

static void start(void)
{
    pthread_t thread;
    const char *limit = getenv("STUB_LIMIT"), *trace = getenv("STUB_TRACE"), *poison = getenv("STUB_POISON");
    stub.started = true;
    stub.limit = limit ? strtoull(limit, NULL, 10) : (size_t)24 << 30;
    stub.trace = trace ? fopen(trace, "w") : NULL;
    stub.unreachable = poison && !strcmp(poison, "unreachable");
    stub.poison = !stub.unreachable && (!poison || strcmp(poison, "0"));
    if (pthread_create(&thread, NULL, run_queue, NULL))
        abort();
    pthread_detach(thread);
}

static void submit(void (*run)(void *), void *argument)
{
    pthread_mutex_lock(&stub.lock);
    if (!stub.started)
        start();
    while (stub.submitted - stub.done == QUEUE) {
        hurry();
        pthread_cond_wait(&stub.idle, &stub.lock);
    }
    stub.queue[stub.submitted++ % QUEUE] = (struct work){run, argument};
    if (stub.submitted - stub.done >= QUEUE / 2)
        hurry();
    pthread_mutex_unlock(&stub.lock);
}

static void wait_all(void)
{
    pthread_mutex_lock(&stub.lock);
    while (stub.done != stub.submitted) {
        hurry();
        pthread_cond_wait(&stub.idle, &stub.lock);
    }
    pthread_mutex_unlock(&stub.lock);
}

static void release(void *argument)
{
    struct block *block = argument;
    if (stub.poison)
        memset((char *)block + HEADER, NAN_BYTE, block->bytes);
    if (block->mapped)
        munmap(block, HEADER + block->bytes);
    else
        free(block);
}

EXPORT int cudaMalloc(void **pointer, size_t bytes);
int cudaMalloc(void **pointer, size_t bytes)
{
    pthread_mutex_lock(&stub.lock);
    if (!stub.started)
        start();
    bool fits = stub.live + bytes <= stub.limit;
    if (fits)
        stub.live += bytes;
    if (fits && stub.trace)
        fprintf(stub.trace, "allocate,%zu\n", bytes);
    pthread_mutex_unlock(&stub.lock);
    if (!fits)
        return OUT_OF_MEMORY;
    const bool mapped = stub.unreachable || bytes >= MAP_FROM;
    struct block *block = mapped ? mmap(NULL, HEADER + bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                 : aligned_alloc(ALIGNMENT, (HEADER + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!block || block == MAP_FAILED)
        return OUT_OF_MEMORY;
    *block = (struct block){bytes, mapped};
    if (stub.poison)
        memset((char *)block + HEADER, NAN_BYTE, bytes);
    if (stub.unreachable)
        mprotect((char *)block + HEADER, bytes, PROT_NONE);
    *pointer = (char *)block + HEADER;
    return SUCCESS;
}

EXPORT int cudaMemGetInfo(size_t *unused, size_t *total);
int cudaMemGetInfo(size_t *unused, size_t *total)
{
    pthread_mutex_lock(&stub.lock);
    *total = stub.limit;
    *unused = stub.limit - stub.live;
    pthread_mutex_unlock(&stub.lock);
    return SUCCESS;
}

EXPORT int cudaFree(void *pointer);
int cudaFree(void *pointer)
{
    if (!pointer)
        return SUCCESS;
    struct block *block = (struct block *)(void *)((char *)pointer - HEADER);
    pthread_mutex_lock(&stub.lock);
    stub.live -= block->bytes;
    if (stub.trace) {
        fprintf(stub.trace, "free,%zu\n", block->bytes);
        fflush(stub.live ? NULL : stub.trace);
    }
    pthread_mutex_unlock(&stub.lock);
    submit(release, block);
    return SUCCESS;
}

static void run_copy(void *argument)
{
    struct copy *copy = argument;
    memcpy(copy->to, copy->from, copy->bytes);
    free(copy);
}

EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)kind, (void)stream;
    struct copy *copy = malloc(sizeof *copy);
    if (!copy)
        abort();
    *copy = (struct copy){to, from, bytes};
    submit(run_copy, copy);
    return SUCCESS;
}

EXPORT int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument);
int cudaLaunchHostFunc(void *stream, void (*function)(void *), void *argument)
{
    (void)stream;
    submit(function, argument);
    return SUCCESS;
}

struct event {
    unsigned long position;
};

EXPORT int cudaEventCreateWithFlags(void **event, unsigned flags);
int cudaEventCreateWithFlags(void **event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return *event ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cudaEventRecord(void *event, void *stream);
int cudaEventRecord(void *event, void *stream)
{
    (void)stream;
    pthread_mutex_lock(&stub.lock);
    ((struct event *)event)->position = stub.submitted;
    pthread_mutex_unlock(&stub.lock);
    return SUCCESS;
}

EXPORT int cudaEventSynchronize(void *event);
int cudaEventSynchronize(void *event)
{
    pthread_mutex_lock(&stub.lock);
    while (stub.done < ((struct event *)event)->position) {
        hurry();
        pthread_cond_wait(&stub.idle, &stub.lock);
    }
    pthread_mutex_unlock(&stub.lock);
    return SUCCESS;
}

EXPORT int cudaEventDestroy(void *event);
int cudaEventDestroy(void *event)
{
    free(event);
    return SUCCESS;
}

EXPORT int cudaStreamSynchronize(void *stream);
int cudaStreamSynchronize(void *stream)
{
    (void)stream;
    wait_all();
    return SUCCESS;
}

/* One queue stands for all streams: there is nothing to wait for. */
EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags);
int cudaStreamCreateWithFlags(void **stream, unsigned flags)
{
    (void)flags;
    *stream = &stub;
    return SUCCESS;
}

EXPORT int cudaStreamDestroy(void *stream);
int cudaStreamDestroy(void *stream)
{
    (void)stream;
    wait_all();
    return SUCCESS;
}

EXPORT int cudaStreamWaitEvent(void *stream, void *event, unsigned flags);
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)stream, (void)event, (void)flags;
    return SUCCESS;
}

EXPORT int cudaMallocHost(void **pointer, size_t bytes);
int cudaMallocHost(void **pointer, size_t bytes)
{
    *pointer = malloc(bytes);
    return *pointer ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cudaFreeHost(void *pointer);
int cudaFreeHost(void *pointer)
{
    wait_all();
    free(pointer);
    return SUCCESS;
}

EXPORT int cudaGetDeviceCount(int *count);
int cudaGetDeviceCount(int *count)
{
    *count = 1;
    return SUCCESS;
}

EXPORT int cudaSetDevice(int device);
int cudaSetDevice(int device)
{
    return device;
}

EXPORT int cudaGetLastError(void);
int cudaGetLastError(void)
{
    return SUCCESS;
}

EXPORT const char *cudaGetErrorString(int error);
const char *cudaGetErrorString(int error)
{
    return error == OUT_OF_MEMORY ? "out of memory" : "no error";
}
