/* Definitions that a trace makes as it goes on: sizes of devices, streams by index, and where each thread asks from.

   A record names a stream by a small index and a thread by another. A definition says what the index stands for, and comes
   before its first use. A later one of the same index replaces it.

   Example, two records:
     DEFINE_STREAM   stream 3   id 0x7f12   size 0x100000002    index 3 is the stream with handle 0x7f12, of device 2;
                                                                the fixed segments of context 1 serve it
     SITE            thread 5   id 9        size 2              thread 5 asks from site 9 in phase 2 from here on

   Memory grows with the highest index, 8 bytes each, of which a trace has 2^20 at most. */
#ifndef SG_DEFINITIONS_H
#define SG_DEFINITIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/core.h"
#include "segalloc/trace_format.h"

struct sg_definitions {
    uint64_t device_bytes[SG_DEVICES_MAX]; /* 0: the trace does not say */
    int devices;                           /* beyond the highest that a stream is of */
    struct sg_defined_stream {
        uint8_t device;
        uint32_t context; /* whose fixed segments serve it */
    } * stream;
    uint32_t streams;
    struct sg_defined_place {
        uint32_t site, phase;
    } * place; /* by thread; NULL: the trace does not say */
};

/* Nothing is defined yet, but that there is a device 0. sg_definitions_fini() gives all memory back. */
static inline void sg_definitions_init(struct sg_definitions *definitions)
{
    *definitions = (struct sg_definitions){.devices = 1};
}

void sg_definitions_fini(struct sg_definitions *definitions);

/* Takes a record SEGALLOC_RECORD_DEFINE_STREAM, or SEGALLOC_RECORD_SITE. False: no host memory. */
bool sg_define_stream(struct sg_definitions *definitions, const struct segalloc_trace_record *record);
bool sg_define_place(struct sg_definitions *definitions, const struct segalloc_trace_record *record);

/* The device of a stream, 0 where the trace has not defined that one; the context that its fixed segments are of. */
static inline int sg_defined_device(const struct sg_definitions *definitions, uint32_t stream)
{
    return stream < definitions->streams ? definitions->stream[stream].device : 0;
}
static inline uint32_t sg_defined_context(const struct sg_definitions *definitions, uint32_t stream)
{
    return stream < definitions->streams ? definitions->stream[stream].context : 0;
}

/* Where the thread of a record asks from; zeros: unknown. */
static inline struct sg_defined_place sg_defined_place(const struct sg_definitions *definitions, uint16_t thread)
{
    return definitions->place ? definitions->place[thread] : (struct sg_defined_place){0, 0};
}

#endif
