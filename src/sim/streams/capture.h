/* Captures: which streams take part, and what is prohibited meanwhile. The driver API's reference
   says what is prohibited, and which captures it ruins (captures of streams, cuThreadExchangeStreamCaptureMode). `graphs/captured_work.h`
   makes nodes of what the streams do.

   For example, a thread captures in the mode GLOBAL. Another thread's cuMemAlloc returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
   then, and the capture is invalid. A thread that chose the mode RELAXED allocates. */
#ifndef SIM_CAPTURE_H
#define SIM_CAPTURE_H

#include "streams/nodes.h"
#include "streams/stream.h"

struct sim_capture {
    uint64_t id;
    CUgraph graph;
    bool made; /* the capture made the graph, rather than add to one of the program's */
    bool over, invalid;
    CUstreamCaptureMode mode;
    const void *thread; /* that began it */
    CUstream origin;
    CUstream streams; /* all that take part, by next_captured */
    unsigned refs;    /* itself while it lasts, and events recorded in it */
    struct sim_capture *next;
};

/* All locked, here and below. */

bool sim_capturing(const struct CUstream_st *stream);
void sim_capture_ruin(struct sim_capture *capture);
CUresult sim_capture_unsupported(CUstream stream); /* ruins it too */
/* The legacy stream may not be used, in any way, while a blocking stream of its context captures. */
CUresult sim_capture_legacy(CUstream stream);
/* True where a blocking stream of the context captures. */
bool sim_capture_conflicts(CUcontext context);
/* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED where the thread may not now do what is unsafe during a capture; the captures
   concerned are ruined. */
CUresult sim_capture_forbids(void);
/* The whole context may not be waited for while a stream of it captures. */
CUresult sim_capture_context(CUcontext context);

/* A capture begins: it is among those under way from now on. */
void sim_capture_open(struct sim_capture *capture);
/* A capture is over: no stream takes part any more. */
void sim_capture_close(struct sim_capture *capture);
void sim_capture_unref(struct sim_capture *capture);
/* The stream takes part from now on, or no more. */
void sim_capture_enter(CUstream stream, struct sim_capture *capture);
void sim_capture_leave(CUstream stream);
/* The nodes that the next one of the stream depends on; NULL when out of host memory. */
struct sim_nodes *sim_capture_tips(CUstream stream);

/* Not locked: this thread, only to be compared; and its mode, of which the one before is returned. */
const void *sim_capture_thread(void);
CUstreamCaptureMode sim_capture_set_mode(CUstreamCaptureMode mode);

#endif
