/* Idle memory goes back to a driver that has run out of memory for another purpose. */
#ifndef SG_MAKE_ROOM_H
#define SG_MAKE_ROOM_H

#include <stdbool.h>

#include "cuda_abi.h"

/* Gives back what is idle on all devices, after a bounded wait for what is pending. Whether there was any, so that
   asking the driver again can help. Nothing while a capture is active. No lock of ours is held. */
bool sg_made_room(void);

/* Gives idle memory back for a thread that is inside, which has the core; NULL: there is none. */
struct sg_core;
bool sg_made_room_by(struct sg_core *core);

/* Whether to make a call again that has answered `result` and has done nothing if that is running out. */
static inline bool sg_ran_out(CUresult result)
{
    return __builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0) && sg_made_room();
}

#endif
