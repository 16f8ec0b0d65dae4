/* The core's events, one call of the observer each, in the order of its critical sections and under its lock.
   The record layer turns them into a trace; the replay feeds them back. */
#ifndef SG_EVENT_H
#define SG_EVENT_H

#include <stdint.h>

#include "segalloc/trace_format.h"

/* Receives one record; `time_ns` and `thread` are the receiver's to fill. Called with the core's device lock held:
   must neither wait nor call back. */
typedef void sg_event_fn(void *sink, const struct segalloc_trace_record *record);

struct sg_event_sink {
    sg_event_fn *emit; /* NULL: nobody listens */
    void *sink;
};

/* Tells the observer, if there is one. `bits`: the flags of the record. */
static inline void sg_event_emit(const struct sg_event_sink *observer, uint8_t kind, uint8_t bits, uint32_t stream,
    uint64_t id, uint64_t size)
{
    if (observer->emit) {
        struct segalloc_trace_record record = {.kind = kind, .flags = bits, .stream = stream, .id = id, .size = size};
        observer->emit(observer->sink, &record);
    }
}

#endif
