/* The definitions of a trace, gathered while its records go by. Memory grows with the number of streams and threads,
   which is bounded, not with the length of the trace. */
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

/* Takes note of a definition, or of where a thread asks from; other kinds are let pass. 0, -ENOMEM, or -ERANGE for an
   index past the bounds above. */
int sg_dictionary_add(struct sg_dictionary *dictionary, const struct segalloc_trace_record *record);
void sg_dictionary_free(struct sg_dictionary *dictionary);

/* Never NULL: an unknown index has all zeros. */
const struct sg_stream_info *sg_dictionary_stream(const struct sg_dictionary *dictionary, uint32_t index);
const struct sg_thread_info *sg_dictionary_thread(const struct sg_dictionary *dictionary, uint32_t index);

#endif
