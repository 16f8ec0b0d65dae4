/* Threads of ours: what may take long, and no thread of the program should. */
#ifndef SG_HELPER_H
#define SG_HELPER_H

#include <stdbool.h>

#include "cuda_abi.h"

/* Starts a detached thread that takes none of the program's signals. False: there can be none. */
bool sg_helper_start(void *(*run)(void *), void *user);

/* Waits for the work of the calling thread's current context, for `wait_limit` of the configuration at most:
   CUDA_ERROR_NOT_READY then, and while a wait that was given up still goes on. No lock may be held. */
CUresult sg_helper_wait_for_context(void);

#endif
