/* Waiting, and calls of libc, in threads that belong to the program.

   Such a thread may get a signal at any moment, and another thread may cancel it (pthread_cancel). A wait has to last as
   long as it was meant to. A call of libc at which a thread may end, such as open(), must not end one that holds a lock of
   ours. */
#ifndef SG_REST_H
#define SG_REST_H

#include <pthread.h>
#include <stddef.h>

/* Sleeps for so many nanoseconds, less than a second; signals make it no shorter. Unlike nanosleep it is no point at
   which a thread is cancelled, and leaves errno as it was. */
void sg_rest(long ns);

/* Writes all bytes to a descriptor, in as many calls as it takes: signals end none for good. 0 or -errno, with some of them written
   perhaps. It is a point at which a thread may end. */
int sg_write_all(int fd, const void *bytes, size_t size);

/* Turns cancellation off around calls of libc at which a thread may end: one that ended there would leave locks of ours
   held. Returns the state before, for sg_cancel_restore(). */
static inline int sg_cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

/* Brings back the state that sg_cancel_off() has returned. */
static inline void sg_cancel_restore(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
