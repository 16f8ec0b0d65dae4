/* The program's names of streams: handles, and the default ones. NULL is the legacy stream of the current context;
   CU_STREAM_PER_THREAD is a stream that a thread has in each context, made at its first use. */
#ifndef SIM_PROGRAM_STREAM_H
#define SIM_PROGRAM_STREAM_H

#include "streams/stream.h"

/* Locked. The stream a program's handle means: 0 and CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, or one of its own. */
CUresult sim_stream_get(CUstream handle, CUstream *ret);

/* For the ..._ptsz forms, in which NULL means the thread's own. */
static inline CUstream sim_per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

#endif
