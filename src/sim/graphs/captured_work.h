/* Captured work: what is submitted to a capturing stream becomes a node of the capture's graph, after the stream's tips.

   For example, a stream that captured a copy and then a kernel has one tip, the kernel's node, which depends on the copy's.
   An event recorded there holds that tip, and a second stream that waits for the event takes part with the same tip. */
#ifndef SIM_CAPTURED_WORK_H
#define SIM_CAPTURED_WORK_H

#include "graphs/graph.h"
#include "streams/capture.h"

/* All locked. */

/* Makes `work`, which it owns, a node of the stream's capture; CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture
   invalid, for work that cannot be one. */
CUresult sim_capture_work(CUstream stream, struct sim_work *work);
CUresult sim_capture_step(CUstream stream, struct sim_step step, CUgraphNode *ret);
/* The stream comes after what `capture` had at `tips`, and takes part in it from now on. */
CUresult sim_capture_join(CUstream stream, struct sim_capture *capture, const struct sim_nodes *tips);
/* The capture is over, and its graph can be changed again. */
void sim_capture_end(struct sim_capture *capture);
/* The end of a stream: it leaves its capture, whose graph nobody gets if the stream began it, and then its context. Queued
   work is still done, or with `forget` forgotten. */
void sim_stream_end(CUstream stream, bool forget);

#endif
