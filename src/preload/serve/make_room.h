/* Idle memory goes back to a driver that has run out of memory for another purpose. First goes this process's, then
   that of other processes of this user.

   Why. The core keeps pages that are idle. A context, an array, a library or managed memory that the driver has no room
   for would fail although memory is idle.

   For example, 23 of 24 GiB are held, 3 GiB of them idle; a library asks cuArrayCreate for 2 GiB. The driver has 1 GiB
   and refuses. The 3 GiB go back, the call is made again and succeeds. */
#ifndef SG_MAKE_ROOM_H
#define SG_MAKE_ROOM_H

#include <stdbool.h>

#include "driver/cuda_abi.h"

/* Whence memory is to be had, the nearest first. */
enum sg_room {
    SG_ROOM_OWN,    /* what this process holds idle, on all devices, after a bounded wait for what is pending; while a capture
                       is active, for what a wait that is legal then can show */
    SG_ROOM_OTHERS, /* what other processes of this user hold idle on the current device */
    SG_ROOMS
};

/* Has idle memory given back to the driver. True if there was any, so that asking the driver again can help. No lock of
   ours is held. */
bool sg_made_room(enum sg_room whose);

/* Has other processes of this user give back what they hold idle on a device; below 0: the current one. For any thread. */
bool sg_made_room_by_others(int device);

/* Gives idle memory back for a thread that is inside, which has the core; NULL: there is none. */
struct sg_core;
bool sg_made_room_by(struct sg_core *core);

/* Makes a call again that has answered `result`, as long as that is running out and more room can be made. A call that runs
   out has done nothing. */
#define SG_MAKE_ROOM_FOR(result, call)                                                                           \
    for (enum sg_room whose_ = SG_ROOM_OWN;                                                                      \
         __builtin_expect((result) == CUDA_ERROR_OUT_OF_MEMORY, 0) && whose_ < SG_ROOMS; whose_++) {             \
        if (sg_made_room(whose_))                                                                                \
            (result) = (call);                                                                                   \
    }

#endif
