/* The definitions of a trace, gathered while its records go by: streams, threads, devices, and where memory was asked for.

   A record names a stream, a thread or a site by an *index*, to stay small. A definition says what the index stands for. A
   tool gives every record to sg_dictionary_add() before it looks at it.

   Example:
     DEFINE_STREAM   stream 2, id 0x55d0, size 1, flags HEX_STREAM    stream 2 has handle 0x55d0, on device 1
     DEFINE_THREAD   thread 1, id 4711                                thread 1 is 4711 of the system
     SITE            thread 1, id 9, size 3                           thread 1 asks from site 9 in phase 3 now
     ALLOCATE        thread 1, stream 2, size 307200                  so 300 KiB on device 1, from site 9

   Memory grows with the number of streams and threads, which is bounded, and not with the length of the trace. */
#ifndef SG_DICTIONARY_H
#define SG_DICTIONARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "segalloc/trace_format.h"
#include "reader/site_book.h"

enum {
    SG_DICTIONARY_STREAMS = SEGALLOC_TRACE_STREAMS, /* indices from here on are refused */
    SG_DICTIONARY_THREADS = 1 << 16,
    SG_DICTIONARY_DEVICES = SEGALLOC_TRACE_DEVICES
};

struct sg_stream_info {
    uint64_t handle;
    uint32_t context, device;
    uint8_t flags; /* spelling, segalloc_record_flags */
    bool known;
};

struct sg_thread_info {
    uint64_t id;
    uint8_t flags;
    bool known;
    uint32_t site, phase; /* of what it asks for now */
};

struct sg_device_info {
    uint64_t granularity, bytes;
    bool known;
};

struct sg_dictionary {
    struct sg_stream_info *stream; /* by index; `streams` is one more than the largest seen */
    struct sg_thread_info *thread;
    struct sg_device_info device[SG_DICTIONARY_DEVICES];
    uint32_t streams, threads, devices;
    uint32_t stream_room, thread_room;
    struct sg_site_book book;
};

/* Takes note of a definition, or of where a thread asks from; other kinds do nothing. 0, -ENOMEM, or -ERANGE for an index
   past the bounds above. A dictionary of zeros is empty. */
int sg_dictionary_add(struct sg_dictionary *dictionary, const struct segalloc_trace_record *record);
void sg_dictionary_free(struct sg_dictionary *dictionary);

/* The definition of an index, all zeros where there is none. Valid until the next sg_dictionary_add(). */
const struct sg_stream_info *sg_dictionary_stream(const struct sg_dictionary *dictionary, uint32_t index);
const struct sg_thread_info *sg_dictionary_thread(const struct sg_dictionary *dictionary, uint32_t index);

#endif
