/* Events: points of streams. One that several processes share (CU_EVENT_INTERPROCESS) is what its last record was, in
   whichever process. A record of this one is known by its stream and position, as any event's, one of another only by its
   number. An event that was recorded in a capture stands for nodes there. */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "streams/capture.h"
#include "streams/nodes.h"
#include "streams/records.h"
#include "streams/work.h"

struct CUevent_st {
    struct sim_handle handle;
    CUcontext context;
    unsigned flags, refs; /* the handle, and each record under way */
    CUstream stream;      /* of the last record; NULL before the first. Holds a reference */
    uint64_t position;
    uint64_t time_ns;            /* when that was reached */
    struct sim_capture *capture; /* that it was last recorded in; NULL otherwise. Holds a reference */
    struct sim_nodes tips;       /* what it stands for there */
    struct sim_clock clock;      /* of the last record; for the hazard checker */
    struct sim_records *records; /* of an interprocess event; else NULL */
    uint64_t number;             /* of the record that `stream` and `position` are of; 0: none of this process yet */
};

/* All locked. */

/* An event of the current context; owns `records`, which may be NULL, on success only. */
CUresult sim_event_new(CUevent *ret, unsigned flags, struct sim_records *records);
void sim_event_ref(CUevent event);
void sim_event_unref(CUevent event);
/* CUDA_ERROR_INVALID_HANDLE for what is no event; else its context's error. */
CUresult sim_event_get(CUevent handle, CUevent *ret);

/* True where the last record is another process's. */
bool sim_event_is_foreign(CUevent event);
bool sim_event_is_complete(CUevent event);
/* The clock of all that comes before the last record. */
const struct sim_clock *sim_event_clock(CUevent event);

/* The work of a record, which has still to be submitted. Then the event's state after that: the work at that position of
   the stream records it. */
struct sim_work *sim_event_new_record(CUevent event);
void sim_event_set_record(CUevent event, CUstream stream, uint64_t position);
/* Both, in a stream that does not capture. */
CUresult sim_event_submit_record(CUevent event, CUstream stream);
/* The event stands for the work at that position, which has been submitted and records it. */
CUresult sim_event_recorded(CUevent event, CUstream stream, uint64_t position);

/* Work of a stream that is held up until the event's last record, another process's, is reached. */
struct sim_work *sim_event_new_foreign_wait(CUevent event);
/* The stream's work from here on comes after what the event was recorded behind. The stream does not capture. */
CUresult sim_event_wait(CUevent event, CUstream stream);

/* ns of a clock that never goes back. Not locked. */
uint64_t sim_now_ns(void);

#endif
