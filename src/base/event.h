/* Events, and the observer that receives them.

   An event is one record of segalloc/trace_format.h: 32 bytes that say what happened or was found out. The observer is a
   function with its data (`struct sg_event_sink`). The core calls it for each event, in the order of its critical
   sections, while it holds the device's lock.

   Why so: the core knows no files and no clock. The trace writer is one observer; the replay is another, which compares
   the core's records with the recorded ones. Both need the order in which decisions were taken, and only the lock gives
   that order.

   Example. A program asks for 300 KiB on the stream of index 1, and the core takes the block at 0x7f2000040000. It emits
       kind ALLOCATE   stream 1   id 0x7f2000040000   size 307200   flags 0
   and leaves `time_ns` and `thread` 0. The trace writer fills these two in and stores the record in the file. */
#ifndef SG_EVENT_H
#define SG_EVENT_H

#include <stdint.h>

#include "segalloc/trace_format.h"

/* Receives one record, which lives as long as the call. `time_ns` and `thread` are 0, for the receiver to fill in its
   copy. Called with the device's lock held: it must neither wait nor call the core. */
typedef void sg_event_fn(void *sink, const struct segalloc_trace_record *record);

struct sg_event_sink {
    sg_event_fn *emit; /* NULL: nobody listens */
    void *sink;
};

/* Gives the observer one record, if there is an observer. `kind` is an enum segalloc_record_kind, `bits` are its flags
   (enum segalloc_record_flags); the trace format says what `stream`, `id` and `size` are for each kind. The device's lock
   is held. */
static inline void sg_event_emit(const struct sg_event_sink *observer, uint8_t kind, uint8_t bits, uint32_t stream,
    uint64_t id, uint64_t size)
{
    if (observer->emit) {
        struct segalloc_trace_record record = {.kind = kind, .flags = bits, .stream = stream, .id = id, .size = size};
        observer->emit(observer->sink, &record);
    }
}

#endif
