/* Calls of functions that need the lock of a device, for tests. */
#ifndef LOCKED_H
#define LOCKED_H

#include "rooms.h"

/* What `call` returns under the lock of `device`. */
#define LOCKED(device, call)                                         \
    ({                                                               \
        struct sg_lock *locked_ = (struct sg_lock *)&(device)->lock; \
        sg_lock(locked_);                                            \
        __auto_type locked_result_ = (call);                         \
        sg_unlock(locked_);                                          \
        locked_result_;                                              \
    })

/* A call that returns nothing. */
#define DO_LOCKED(device, call)                                      \
    do {                                                             \
        struct sg_lock *locked_ = (struct sg_lock *)&(device)->lock; \
        sg_lock(locked_);                                            \
        call;                                                        \
        sg_unlock(locked_);                                          \
    } while (0)

#endif
