/* What a cached allocation and free cost, through the exported cudaMalloc and cudaFree, beside the C library's malloc
   and mimalloc in the same run; and through segalloc_malloc_on() and segalloc_free(), for one stream and for eight in
   turn. The driver underneath does nothing (null/), so what is timed is ours. With `sites` each allocation is asked for
   at one of 64 places, 16 frames deep, of a Python that runs nothing, or by code.

   hotpath [--json] [--only ALLOCATOR] [--name LOOP] [--live N] [--seconds S]; one object a line with --json.
   hotpath --windows MS --seconds S: pairs of 4 KiB. A line each so many ms: when they ended (ns of CLOCK_MONOTONIC), and
   the median of a pair. */
#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "null/null.h"
#include "segalloc/segalloc.h"
#include "stub_python.h"

enum { BATCH = 32, SAMPLES_MOST = 1 << 20, THREADS_MOST = 2 };

struct allocator {
    const char *name;
    void *(*take)(size_t bytes);
    void (*give)(void *block);
    const char *conf; /* run in a process of its own with these options; NULL: in the first one */
    bool python;      /* which runs Python */
    bool devices; /* knows more than one device */
    int streams;  /* whose turn it is by turns; 0: none is named */
};

static void *segalloc_take(size_t bytes)
{
    void *block;
    if (cudaMalloc(&block, bytes) != 0)
        abort();
    return block;
}

static void segalloc_give(void *block)
{
    cudaFree(block);
}

/* Streams in turn; the driver that does nothing takes any handle. */
static int streams = 1;
static _Thread_local uintptr_t turn, own_streams; /* each device has its own */

static void *stream_take(size_t bytes)
{
    void *block = segalloc_malloc_on(bytes, (void *)(own_streams + ++turn % (unsigned)streams * 256));
    if (!block)
        abort();
    return block;
}

static void stream_give(void *block)
{
    if (segalloc_free(block) != 0)
        abort();
}

/* Loaded by itself: linked, it would take the C library's place. */
static void *(*mimalloc_malloc)(size_t bytes);
static void (*mimalloc_free)(void *block);

static bool mimalloc_load(void)
{
    void *library = dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
    void *found[2] = {library ? dlsym(library, "mi_malloc") : NULL, library ? dlsym(library, "mi_free") : NULL};
    memcpy(&mimalloc_malloc, &found[0], sizeof found[0]);
    memcpy(&mimalloc_free, &found[1], sizeof found[1]);
    return found[0] && found[1];
}

static void *mimalloc_take(size_t bytes)
{
    return mimalloc_malloc(bytes);
}

static void mimalloc_give(void *block)
{
    mimalloc_free(block);
}

enum { PLACES = 64, DEEP = 16 };

/* Python's stacks, which differ in the innermost frame, and this thread's. */
static struct stub_text file_text, name_text;
static struct stub_code code;
static struct stub_frame place[PLACES], outer[DEEP];
static struct stub_cframe cframe;
static struct stub_thread python_thread = {.cframe = &cframe};

static void start_python(void)
{
    stub_text(&file_text, "/home/me/train.py");
    stub_text(&name_text, "forward");
    stub_code(&code, &file_text, &name_text, 1);
    for (int i = 0; i < DEEP; i++)
        stub_frame(&outer[i], &code, i, i + 1 < DEEP ? &outer[i + 1] : NULL);
    for (int i = 0; i < PLACES; i++)
        stub_frame(&place[i], &code, DEEP + i, outer);
    stub_python.thread = &python_thread;
}

static void *python_take(size_t bytes)
{
    cframe.current = &place[++turn % PLACES];
    return segalloc_take(bytes);
}

static const struct allocator allocators[] = {
    {.name = "segalloc", .take = segalloc_take, .give = segalloc_give, .devices = true},
    {.name = "segalloc_stream", .take = stream_take, .give = stream_give, .devices = true, .streams = 1},
    {.name = "segalloc_stream", .take = stream_take, .give = stream_give, .devices = true, .streams = 8},
    {.name = "segalloc_traced", .take = segalloc_take, .give = segalloc_give, .devices = true, .conf = "trace:%s"},
    {.name = "segalloc_sites", .take = segalloc_take, .give = segalloc_give, .conf = "trace:%s,sites:True"},
    {.name = "segalloc_python", .take = python_take, .give = segalloc_give, .conf = "trace:%s,sites:True", .python = true},
    {.name = "malloc", .take = malloc, .give = free},
    {.name = "mimalloc", .take = mimalloc_take, .give = mimalloc_give},
};

/* Each has cache lines of its own: its thread writes to it while the others read theirs. Two in one line cost every
   allocator's two threads an eighth. */
struct work {
    alignas(128) const struct allocator *allocator;
    const char *name;
    size_t live, pair_bytes; /* pair_bytes 0: a random mix over `live` blocks */
    int device;
    double seconds;
    pthread_barrier_t *barrier;
    /* results */
    uint64_t pairs;
    double elapsed_ns;
    float *sample; /* ns of a pair, mean of BATCH */
    size_t samples;
};

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* 512 B to 32 KiB, as many in each power of two. */
static size_t mixed_size(uint64_t *state)
{
    uint64_t bits = random_next(state);
    size_t low = (size_t)512 << (bits % 6);
    return low + (bits >> 32) % low;
}

/* What the loops are about to do: drawn AHEAD operations before it is done, so that the list of blocks, 8 MB of them at
   the most, is not what is measured. It is the loop's own, looked through at random, where a program that is about to
   free a block has the address at hand. Only the list's entry is fetched, never what an allocator has behind it, and
   for all of them alike. */
enum { AHEAD = 4 };
struct draws {
    uint64_t state;
    unsigned turn;
    struct {
        void **slot;
        size_t bytes;
    } next[AHEAD];
};

static void draw(struct draws *draws, void **block, size_t live)
{
    unsigned i = draws->turn++ % AHEAD;
    draws->next[i].slot = &block[random_next(&draws->state) % live];
    draws->next[i].bytes = mixed_size(&draws->state);
    __builtin_prefetch(draws->next[i].slot, 1);
}

static void pair(const struct work *work, void **block, struct draws *draws)
{
    if (work->pair_bytes) {
        void *volatile taken = work->allocator->take(work->pair_bytes);
        work->allocator->give(taken);
    } else {
        void **slot = draws->next[draws->turn % AHEAD].slot;
        size_t bytes = draws->next[draws->turn % AHEAD].bytes;
        draw(draws, block, work->live);
        work->allocator->give(*slot);
        *slot = work->allocator->take(bytes);
    }
}

static void *run(void *argument)
{
    struct work *work = argument;
    struct draws draws = {.state = 88172645463325252u + (uint64_t)work->device * 7919};
    void **block = work->pair_bytes ? NULL : malloc(work->live * sizeof *block);
    null_set_device(work->device);
    own_streams = (uintptr_t)(work->device + 1) << 16;
    for (size_t i = 0; block && i < work->live; i++)
        block[i] = work->allocator->take(mixed_size(&draws.state));
    for (int i = 0; block && i < AHEAD; i++)
        draw(&draws, block, work->live);
    for (size_t i = 0; i < (block ? work->live : 1000); i++) /* to a steady state */
        pair(work, block, &draws);
    pthread_barrier_wait(work->barrier);
    double began = now_ns(), before = began, end = began + work->seconds * 1e9;
    while (before < end) {
        for (int i = 0; i < BATCH; i++)
            pair(work, block, &draws);
        double after = now_ns();
        if (work->samples < SAMPLES_MOST)
            work->sample[work->samples++] = (float)((after - before) / BATCH);
        work->pairs += BATCH;
        before = after;
    }
    work->elapsed_ns = before - began;
    pthread_barrier_wait(work->barrier);
    for (size_t i = 0; block && i < work->live; i++)
        work->allocator->give(block[i]);
    free(block);
    return NULL;
}

/* What is to be measured: everything, unless the user wants less. */
static struct {
    const char *allocator, *name;
    size_t live;
    double seconds, window_ms;
    bool json;
} wanted = {.seconds = 0.4};

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report(const struct work *work, int threads, int devices)
{
    size_t samples = 0;
    double rate = 0;
    float *all = malloc(sizeof *all * SAMPLES_MOST * (size_t)threads);
    for (int i = 0; i < threads; i++) {
        memcpy(all + samples, work[i].sample, work[i].samples * sizeof *all);
        samples += work[i].samples;
        rate += (double)work[i].pairs / work[i].elapsed_ns * 1e9;
    }
    qsort(all, samples, sizeof *all, by_value);
    const char *format = wanted.json ? "{\"name\":\"%s\",\"allocator\":\"%s\",\"live\":%zu,\"threads\":%d,\"devices\":%"
                                       "d,\"streams\":%d,\"ns_median\":%.1f,"
                                       "\"ns_p99\":%.1f,\"ns_max\":%.1f,\"pairs_per_second\":%.0f}\n"
                                     : "%-9s %-16s %8zu live %2d threads %2d devices %2d streams %9.1f ns median %9.1f "
                                       "p99 %11.1f max %12.0f pairs/s\n";
    printf(format, work->name, work->allocator->name, work->live, threads, devices, work->allocator->streams,
        (double)all[samples / 2], (double)all[samples - 1 - samples / 100], (double)all[samples - 1], rate);
    fflush(stdout);
    free(all);
}

static void measure(const struct allocator *allocator, const char *name, size_t live, size_t pair_bytes, int threads,
    int devices, double seconds)
{
    if ((wanted.name && strcmp(wanted.name, name) != 0) || (wanted.live && wanted.live != live))
        return;
    struct work work[THREADS_MOST];
    pthread_t thread[THREADS_MOST];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        work[i] = (struct work){.allocator = allocator, .name = name, .live = live, .pair_bytes = pair_bytes,
            .device = i % devices, .seconds = seconds, .barrier = &barrier,
            .sample = malloc(SAMPLES_MOST * sizeof(float))};
        pthread_create(&thread[i], NULL, run, &work[i]);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    report(work, threads, devices);
    for (int i = 0; i < threads; i++)
        free(work[i].sample);
    pthread_barrier_destroy(&barrier);
}

static void measure_all(const struct allocator *allocator)
{
    double seconds = wanted.seconds;
    streams = allocator->streams ? allocator->streams : 1;
    static const size_t lives[] = {1000, 10000, 100000, 1000000};
    for (int threads = 1; threads <= THREADS_MOST; threads++) {
        for (int devices = 1; devices <= (allocator->devices ? threads : 1); devices++) {
            measure(allocator, "pair_4KiB", 1, 4096, threads, devices, seconds);
            measure(allocator, "pair_4MiB", 1, 4 << 20, threads, devices, seconds);
        }
    }
    for (unsigned i = 0; i < sizeof lives / sizeof *lives; i++)
        measure(allocator, "mix", lives[i], 0, 1, 1, seconds);
    measure(allocator, "mix", 10000, 0, 2, 1, seconds);
    if (allocator->devices)
        measure(allocator, "mix", 10000, 0, 2, 2, seconds);
}

/* The loop of pairs in stretches, for who does something to this process meanwhile. */
static void measure_windows(double window_ns, double seconds)
{
    static float sample[SAMPLES_MOST];
    const struct work work = {.allocator = &allocators[0], .pair_bytes = 4096};
    for (double begin = now_ns(), end = begin + seconds * 1e9, before = begin; before < end;) {
        size_t samples = 0;
        for (double until = before + window_ns; before < until && samples < SAMPLES_MOST;) {
            for (int i = 0; i < BATCH; i++)
                pair(&work, NULL, NULL);
            double after = now_ns();
            sample[samples++] = (float)((after - before) / BATCH);
            before = after;
        }
        qsort(sample, samples, sizeof *sample, by_value);
        printf("%.0f %.2f\n", before, (double)sample[samples / 2]);
        fflush(stdout);
        before = now_ns();
    }
}

/* The library reads its configuration when it is loaded, so a run with another one is another process, which this tells
   whom it is of. */
static const char OF[] = "HOTPATH_OF";

static void measure_apart(const struct allocator *allocator, char **argv)
{
    char trace[] = "/tmp/hotpath-XXXXXX", conf[128];
    int fd = mkstemp(trace);
    if (fd < 0)
        return;
    close(fd);
    unlink(trace);
    snprintf(conf, sizeof conf, allocator->conf, trace);
    pid_t child = fork();
    if (child == 0) {
        setenv("SEGALLOC_CONF", conf, 1);
        setenv(OF, allocator->name, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    unlink(trace);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {"only", required_argument, NULL, 'o'},
        {"name", required_argument, NULL, 'n'}, {"live", required_argument, NULL, 'l'},
        {"seconds", required_argument, NULL, 's'}, {"windows", required_argument, NULL, 'w'}, {0}};
    int version;
    cudaRuntimeGetVersion(&version); /* makes this an ordinary user of the runtime: nothing else of it is called
                                        directly */
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'j')
            wanted.json = true;
        else if (option == 'o')
            wanted.allocator = optarg;
        else if (option == 'n')
            wanted.name = optarg;
        else if (option == 'l')
            wanted.live = strtoull(optarg, NULL, 10);
        else if (option == 's')
            wanted.seconds = atof(optarg);
        else if (option == 'w')
            wanted.window_ms = atof(optarg);
        else
            return 2;
    }
    if (wanted.window_ms > 0) {
        measure_windows(wanted.window_ms * 1e6, wanted.seconds);
        return 0;
    }
    const char *of = getenv(OF);
    if (of)
        wanted.seconds /= 2;
    for (unsigned i = 0; i < sizeof allocators / sizeof *allocators; i++) {
        const struct allocator *allocator = &allocators[i];
        if ((wanted.allocator && strcmp(wanted.allocator, allocator->name) != 0) ||
            (of && strcmp(of, allocator->name) != 0))
            continue;
        if (allocator->take == mimalloc_take && !mimalloc_load())
            continue; /* not installed */
        if (of && allocator->python)
            start_python();
        if (allocator->conf && !of)
            measure_apart(allocator, argv);
        else
            measure_all(allocator);
    }
    return 0;
}
