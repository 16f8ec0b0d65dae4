/* Waiting, and calls of libc, in threads of the program's, which signals interrupt and which may be cancelled. */
#ifndef SG_REST_H
#define SG_REST_H

#include <pthread.h>

/* Sleeps for so many nanoseconds, less than a second; signals make it no shorter. Unlike nanosleep it is no point at
   which a thread is cancelled, and leaves errno as it was. */
void sg_rest(long ns);

/* Around calls of libc that are such points: a thread that ended there would leave locks of ours held. Returns what
   sg_cancel_restore() takes. */
static inline int sg_cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void sg_cancel_restore(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
