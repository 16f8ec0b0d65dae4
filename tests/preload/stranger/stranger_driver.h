/* What those of these programs share that call the driver too. */
#ifndef STRANGER_DRIVER_H
#define STRANGER_DRIVER_H

#include "stranger.h"

#include <cuda.h>

/* For calls that cannot fail in any run that goes well. */
#define NEED(call)                                     \
    do {                                               \
        CUresult need_ = (call);                       \
        if (need_ != CUDA_SUCCESS) {                   \
            if (fails_first())                         \
                printf("%s: %d\n", #call, (int)need_); \
            exit(1);                                   \
        }                                              \
    } while (0)

/* Prints the call and the number of what it returned. */
#define TELL(call) printf("%s: %d\n", #call, (int)(call))

#endif
