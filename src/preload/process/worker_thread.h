/* Threads of ours, for work that may take long and that no thread of the program should do.

   Nouns. An *errand* is one function that is run so. There are two places: one for an errand that is waited for, one
   for an errand that nobody waits for.

   Why. A wait in the driver can't be given up. A kernel that never ends would hold the program's thread in a cudaFree
   that natively returned an error by then. And a helper thread can wait in relaxed capture mode.

   Limits. One errand at a time in each place. An errand that was given up keeps its place until it returns.

   For example, a strict free waits for a context whose kernel runs 30 s, with wait_limit:20. The errand begins, the
   program's thread rests in slices of 0.2 ms, gives up after 20 s and gets CUDA_ERROR_NOT_READY. The place is free
   again 10 s later. */
#ifndef SG_WORKER_THREAD_H
#define SG_WORKER_THREAD_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* Finds what starts threads. Takes the loader's lock, which nothing below does any more after that. Else a thread that
   starts one within the core would wait for a constructor that allocates. A handler could come while it has that lock,
   and wait for a thread whose own handler wants it. */
void sg_worker_prepare(void);

/* Starts a detached thread that takes none of the program's signals. False: there can be none. */
bool sg_worker_start(void *(*run)(void *), void *user);

/* Calls `run` on a helper thread and waits for its end, for `wait_limit` of the configuration at most.
   CUDA_ERROR_NOT_READY after that, and without a call of `run` while something that was given up still goes on.
   CUDA_ERROR_OPERATING_SYSTEM where there can be no thread. Else what `run` returned. No lock may be held. */
CUresult sg_worker_run(CUresult (*run)(void *user), void *user);

/* Has `run` called so, and waits for nothing. False: there can be no thread, or the last that was begun so goes on. */
bool sg_worker_begin(CUresult (*run)(void *user), void *user);

/* True if what was begun so goes on. No lock. */
bool sg_worker_has_begun(void);

/* Waits until it returns, for `wait_limit` at most. False: nothing was begun, or it still goes on. No lock may be held. */
bool sg_worker_await_begun(void);

/* True if nobody waits any more for what sg_worker_run() runs. For that itself. */
bool sg_worker_given_up(void);

#endif
