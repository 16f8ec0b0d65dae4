/* How fast a trace is read: reader_bench FILE [BATCH]. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "reader/trace_reader.h"

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    char error[SG_TRACE_ERROR];
    struct sg_trace_reader *reader;
    if (argc < 2)
        return 2;
    double start = now();
    if (sg_trace_open(argv[1], &reader, error) < 0) {
        fprintf(stderr, "%s: %s\n", argv[1], error);
        return 1;
    }
    size_t batch = argc > 2 ? strtoul(argv[2], NULL, 10) : 4096, n;
    struct segalloc_trace_record *records = calloc(batch, sizeof(*records));
    uint64_t count = 0;
    while ((n = sg_trace_read(reader, records, batch)) > 0)
        count += n;
    double seconds = now() - start;
    if (sg_trace_error(reader))
        fprintf(stderr, "%s: %s\n", argv[1], sg_trace_error(reader));
    printf("%llu records, %.3f s, %.1f million a second\n", (unsigned long long)count, seconds,
           (double)count / seconds / 1e6);
    free(records);
    sg_trace_close(reader);
    return 0;
}
