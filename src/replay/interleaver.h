/* Plays operations that dropped the core's lock while they were recorded, so that other threads went on meanwhile.

   An *operation* is an allocation that nothing free served, the free of a huge block, or a trim. The return of pages that
   are on another device is one too. A *replay step* is a part of it between two places where it drops the lock; each step has written one
   record (docs/replay.md). The operation *stands still* between two steps until the record of the next one comes.

   Why threads: the core's code for an allocation is one function, which drops and takes the lock on its way. To stop it in
   the middle, it runs on a thread of its own that waits in sg_replay's step function. One thread runs at a time, so the
   outcome depends on the trace alone. An allocation that nothing interrupted costs no thread.

   Example, five records of two threads of the recorded program:
     1. thread 1  SLOW_BEGIN 60 MiB    noted; it has not started, since its end may come next
     2. thread 2  ALLOCATE 1 MiB       something else comes, so operation 1 starts on a thread of its own. It emits its
                                       SLOW_BEGIN, as recorded, and stands still. Then the core serves the 1 MiB
     3. thread 1  SLOW_STEP, size 0    operation 1 goes on: it plans, emits SLOW_STEP, creates and maps pages, stands still
     4. thread 2  FREE                 the core frees at once
     5. thread 1  ALLOCATE 60 MiB      operation 1 goes on to its end: its block is at the address that it returns
   Without records 2 and 4 the whole allocation would have run at record 5, on the thread that plays the trace.

   The core's records are compared with the trace. Where they differ, the trace is of other rules, or part of it is
   missing; the play *diverges*. From there on every operation is played at once, as in an imported trace. So nothing ever
   waits for a record that does not come.

   Limits: 1024 operations on threads at a time; a trace that has more under way diverges. */
#ifndef SG_INTERLEAVER_H
#define SG_INTERLEAVER_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger_driver.h"
#include "core/core.h"

struct sg_interleaver;

/* Makes an interleaver for the calling thread, whose core is then made with the driver, the sink and the replay below. The
   card is borrowed. It refuses nothing by itself from then on, because the trace has all that the recorded driver refused.
   NULL: no memory. */
struct sg_interleaver *sg_interleaver_new(struct sg_ledger *card);
const struct sg_driver *sg_interleaver_driver(const struct sg_interleaver *slow);
struct sg_event_sink sg_interleaver_sink(struct sg_interleaver *slow);
extern const struct sg_replay sg_interleaver_replay;

/* There are no more records: brings all operations to their end, wherever the trace has left them. Before the core is
   destroyed; sg_interleaver_delete() comes after that. */
void sg_interleaver_end(struct sg_interleaver *slow);

void sg_interleaver_delete(struct sg_interleaver *slow);

enum sg_interleaver_kind {
    SG_SLOW_ALLOCATION,
    SG_SLOW_FREE,
    SG_SLOW_TRIM,
    SG_SLOW_PAUSE,
    SG_SLOW_RESUME,
    SG_SLOW_RETURN
};

struct sg_interleaver_call {
    enum sg_interleaver_kind kind;
    struct sg_core *core;
    int device;
    uint64_t bytes; /* of an allocation; to keep, of a trim; the tag of a pause or resume; the other device of a return */
    CUdeviceptr address; /* of a free */
    struct sg_tag tag;
    const struct sg_backup *backup; /* of a pause or resume */
};

/* Begins an operation of the record's thread, with this record. One of the thread that has no end in the trace is finished
   first. False: no memory. */
bool sg_interleaver_begin(struct sg_interleaver *slow, const struct sg_interleaver_call *call,
    const struct segalloc_trace_record *record);

/* Takes the next record of a thread. NONE: the thread has nothing under way, and the caller plays the record. GOES_ON: the
   operation has done its step. ENDED: it is over; of an allocation *ret is the address, 0 where it failed. */
enum sg_interleaver_state { SG_SLOW_NONE, SG_SLOW_GOES_ON, SG_SLOW_ENDED };
enum sg_interleaver_state sg_interleaver_next(struct sg_interleaver *slow, const struct segalloc_trace_record *record,
    CUdeviceptr *ret);

/* The caller is about to ask the core for an operation of one section, whose record will be this one. */
void sg_interleaver_expect(struct sg_interleaver *slow, const struct segalloc_trace_record *record);

/* Something else happens now: the operation that has not started yet runs to its first unrecorded step. */
void sg_interleaver_catch_up(struct sg_interleaver *slow);

/* True once the core's records have differed from the trace. */
bool sg_interleaver_has_diverged(const struct sg_interleaver *slow);

#endif
