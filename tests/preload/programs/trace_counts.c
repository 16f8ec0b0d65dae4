/* usage: trace_counts FILE: prints "ALLOCATIONS FREES END" of a trace. */
#include <stdio.h>

#include "reader/trace_reader.h"

int main(int argc, char **argv)
{
    static const char *const ends[] = {"open", "closed", "killed", "cut", "damaged"};
    struct sg_trace_reader *reader;
    struct segalloc_trace_record records[256];
    char error[SG_TRACE_ERROR];
    long allocs = 0, frees = 0;
    size_t count;
    if (argc != 2 || sg_trace_open(argv[1], &reader, error) < 0) {
        fprintf(stderr, "%s\n", argc == 2 ? error : "usage");
        return 1;
    }
    while ((count = sg_trace_read(reader, records, 256)) > 0) {
        for (size_t i = 0; i < count; i++) {
            allocs += records[i].kind == SEGALLOC_RECORD_ALLOCATE;
            frees += records[i].kind == SEGALLOC_RECORD_FREE;
        }
    }
    printf("%ld %ld %s\n", allocs, frees, ends[sg_trace_info(reader)->end]);
    sg_trace_close(reader);
    return 0;
}
