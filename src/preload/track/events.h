/* The program's events, and the work that each is known to come after.

   Nouns. A *record* puts an event behind the work of a stream. The *clock* of a record is that stream's vector clock: for
   each stream the number of its steps that come before. A *generation* counts records of an event and its end.

   Why. A stream that waits for an event comes after the work before it. Memory freed by that work is then safe for the
   waiting stream, and the core need not ask the driver. An event whose record was not seen gives no such knowledge.

   How. A table has each event that was recorded since order is followed. Its entry has a state and the clock. The hooks
   (hooks/event_hooks.c) look before they ask the driver, and again after. An entry whose generation has moved meanwhile
   is not used. Records that overlap leave the event UNKNOWN, because nobody knows which one was the last.

   Limits. 4,096 events. A full table loses precision only: an event without an entry is UNKNOWN. An *untrusted* event may
   be recorded where no hook sees it, by another process or inside a graph. If one finds no entry, all events without one
   are untrusted.

   For example, stream A has slot 1 and has been given 5 steps; E is recorded on it: state KNOWN, clock {1: 5}. Stream B
   waits for E. The core raises B's clock to {1: 5}. A block that A freed at its step 4 may go to B at once; a block freed
   at step 6 may not. */
#ifndef SG_EVENTS_H
#define SG_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/cuda_abi.h"
#include "order/stream_clock.h"
#include "track/streams.h"

enum sg_event_state {
    SG_EVENT_BLANK,     /* recorded nowhere yet */
    SG_EVENT_KNOWN,     /* `clock` is what comes before it */
    SG_EVENT_UNKNOWN,   /* recorded, but nobody knows what comes before it */
    SG_EVENT_UNTRUSTED, /* the same until it is destroyed */
    SG_EVENT_CAPTURED   /* recorded in a capture: waiting for it makes a stream join that */
};

/* From before the driver is asked to record until it has answered: meanwhile the event gives no knowledge. */
struct sg_event_recording {
    bool early;    /* nobody has memory yet that order would matter to */
    bool followed; /* the place and the clock are known */
    bool untracked_order;
    bool shared; /* other processes may wait for it unseen, and say so */
    struct sg_tracked_stream tracked;
    CUcontext context;
    struct sg_vector_clock clock;
};

/* The knowledge of an event before the driver was asked to wait for it. */
struct sg_event_knowledge {
    enum sg_event_state state;
    bool untracked_order;
    int device;
    uint32_t generation;
    struct sg_vector_clock clock;
};

/* All functions: any thread; SG_LOCK_EVENTS is taken and given back, no other lock may be held that comes after it. */

/* The event is recorded by means that can't be seen: it gives no knowledge from here on until it is destroyed. Also before
   order is followed, because such an event may be recorded again at any time. */
void sg_events_distrust(CUevent event);

/* The event is destroyed, or its handle belongs to a new one. */
void sg_events_forget(CUevent event);

/* The event is new: it was recorded nowhere. Only needed where a missing entry does not mean that. */
void sg_events_enter(CUevent event);

/* The event is recorded where no stream's clock says what comes before it: on a whole context. */
void sg_events_unknow(CUevent event);

/* True if an untrusted event could not be kept: those without an entry are untrusted then. No lock. */
bool sg_events_any_missed(void);

/* Around the driver's call that records. begin: true if the event is untrusted. end: `captured` says that the stream is
   being captured now; a recording of zeros says that the driver refused, so that nothing is known. */
bool sg_events_begin_record(CUevent event);
void sg_events_end_record(CUevent event, bool captured, const struct sg_event_recording *recording);

/* The knowledge of an event, as it is now. */
void sg_events_know(CUevent event, struct sg_event_knowledge *ret);

/* True if it was neither recorded anew nor destroyed since then. */
bool sg_events_is_still(CUevent event, const struct sg_event_knowledge *knowledge);

/* A context has gone; events that were recorded in it are forgotten. */
void sg_events_context_gone(CUcontext context);

#endif
