/* Streams: queues of work. The position of a piece of work is its number in its stream. A stream has submitted up to one
   position and completed up to another: with 5 submitted and 3 completed, two pieces are queued or running. */
#ifndef SIM_STREAM_H
#define SIM_STREAM_H

#include "device/context.h"
#include "hazard/order.h"
#include "sim.h"

enum sim_stream_kind { SIM_STREAM_CREATED, SIM_STREAM_LEGACY, SIM_STREAM_PER_THREAD, SIM_STREAM_MARKER };

struct CUstream_st {
    struct sim_handle handle;
    CUcontext context;
    CUstream next; /* in context->streams */
    enum sim_stream_kind kind;
    unsigned flags, refs;
    int priority;
    uint64_t id;
    bool alive; /* not destroyed; until its work is done it stays in context->streams all the same */
    bool linked;
    uint64_t submitted, completed;
    uint64_t host_wants; /* the smallest position that a thread waits for */
    struct sim_work *head, *tail;
    bool running, ready; /* on a thread now; in the list of streams that can run */
    CUstream next_ready;
    bool waiting;                  /* in the waiters of another stream */
    CUstream waiters, next_waiter; /* streams whose head depends on this one */
    struct sim_capture *capture;   /* that it takes part in */
    struct sim_nodes *tips;        /* what the next captured node depends on */
    CUstream next_captured;        /* in capture->streams */
    bool has_slot;                 /* the rest is order.h's */
    unsigned slot;
    uint64_t slot_base;
    struct sim_clock clock;
};

/* All locked. */

CUresult sim_stream_new(CUcontext context, enum sim_stream_kind kind, unsigned flags, int priority, CUstream *ret);
void sim_stream_ref(CUstream stream);
void sim_stream_unref(CUstream stream);
bool sim_stream_idle(const struct CUstream_st *stream);

#endif
