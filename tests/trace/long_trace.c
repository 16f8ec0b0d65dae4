/* Writes a trace of many events, for what reads long ones: long_trace FILE [MILLIONS]. Blocks of 512 B to 4 MiB come and go in
   10,000 places. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "writer/trace_writer.h"

enum { PLACES = 10000, SIZES = 13, BATCH = 100000 };

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void define(struct sg_event_sink sink)
{
    const struct segalloc_trace_record record[] = {
        {.kind = SEGALLOC_RECORD_DEFINE_DEVICE, .id = 2 << 20, .size = UINT64_C(80) << 30},
        {.kind = SEGALLOC_RECORD_DEFINE_STREAM, .stream = 1, .id = 0x10},
        {.kind = SEGALLOC_RECORD_DEFINE_THREAD, .thread = 0, .id = 1},
    };
    for (size_t i = 0; i < sizeof record / sizeof *record; i++)
        sink.emit(sink.sink, &record[i]);
}

/* The writer's own thread keeps up, also on a busy machine. */
static void rest(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    static uint64_t size[PLACES];
    uint64_t state = 88172645463325252u, events = (argc > 2 ? strtoull(argv[2], NULL, 10) : 100) * 1000000;
    struct sg_trace_writer *writer;
    if (argc < 2)
        return 2;
    const struct sg_trace_writer_options options = {.path = argv[1],
        .create_thread = pthread_create,
        .command = "long_trace"};
    if (sg_trace_writer_create(&options, &writer))
        return 1;
    struct sg_event_sink sink = sg_trace_writer_sink(writer);
    define(sink);
    for (uint64_t i = 0; i < events; i++) {
        uint64_t place = random_next(&state) % PLACES, least = UINT64_C(512) << random_next(&state) % SIZES;
        struct segalloc_trace_record record = {.kind = SEGALLOC_RECORD_FREE,
            .stream = 1,
            .id = (place + 1) << 30,
            .size = size[place]};
        if (!size[place]) {
            record.kind = SEGALLOC_RECORD_ALLOCATE;
            record.size = least + random_next(&state) % least;
        }
        size[place] = size[place] ? 0 : record.size;
        sink.emit(sink.sink, &record);
        if (i % BATCH == 0)
            rest();
    }
    struct sg_trace_writer_state done;
    sg_trace_writer_close(writer);
    sg_trace_writer_state(writer, &done);
    printf("%llu records, %llu dropped\n", (unsigned long long)done.records, (unsigned long long)done.dropped);
    sg_trace_writer_destroy(writer);
    return done.dropped != 0;
}
