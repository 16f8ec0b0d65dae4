/* What an event costs: writer_bench FOLDER [THREADS [MILLIONS]]. The first line is the loop alone. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "writer/trace_writer.h"

static struct sg_event_sink sink;
static uint64_t events = 4000000, pause_ns;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void nothing(void *user, const struct segalloc_trace_record *record)
{
    atomic_store_explicit((_Atomic uint64_t *)user, record->id, memory_order_relaxed);
}

static void *loop(void *user)
{
    double slowest = 0;
    for (uint64_t i = 0; i < events; i++) {
        struct segalloc_trace_record record = {
            .kind = SEGALLOC_RECORD_ALLOCATE + i % 2, .stream = 1, .id = i << 9, .size = i};
        double before = now();
        sink.emit(sink.sink, &record);
        double took = now() - before;
        slowest = took > slowest ? took : slowest;
        for (double until = before + (double)pause_ns / 1e9; pause_ns && now() < until;)
            ;
    }
    *(double *)user = slowest;
    return NULL;
}

static void run(const char *name, unsigned threads)
{
    pthread_t thread[64];
    double slowest[64], start = now();
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, loop, &slowest[i]);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        slowest[0] = slowest[i] > slowest[0] ? slowest[i] : slowest[0];
    }
    printf("%s: %.1f ns an event, slowest %.1f us\n", name, (now() - start) * 1e9 / (double)events, slowest[0] * 1e6);
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc < 2)
        return 2;
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    if (argc > 3)
        events = strtoull(argv[3], NULL, 10) * 1000000;
    if (argc > 4)
        pause_ns = strtoull(argv[4], NULL, 10);
    _Atomic uint64_t dummy;
    sink = (struct sg_event_sink){nothing, &dummy};
    run("loop alone", threads);
    snprintf(path, sizeof(path), "%s/writer_bench.%%p", argv[1]);
    struct sg_trace_writer *writer;
    struct sg_trace_writer_options options = {.path = path, .create_thread = pthread_create};
    if (sg_trace_writer_create(&options, &writer))
        return 1;
    sink = sg_trace_writer_sink(writer);
    run("traced", threads);
    struct sg_trace_writer_state state;
    sg_trace_writer_state(writer, &state);
    sg_trace_writer_close(writer);
    printf("%llu records, %llu dropped, error %d\n", (unsigned long long)state.records,
           (unsigned long long)state.dropped, state.error);
    unlink(state.path);
    sg_trace_writer_destroy(writer);
    return 0;
}
