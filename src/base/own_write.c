#include "own_write.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "rest.h"

/* The kernel sends the signal of a write to the thread that wrote, and a thread's own signals are taken before those of
   its process. So one that somebody else has sent to the process meanwhile is not the one taken. */
static void signal_take(int signal, const sigset_t *before, const sigset_t *pending)
{
    const struct timespec now = {0};
    sigset_t one;
    if (sigismember(before, signal) && sigismember(pending, signal))
        return;
    sigemptyset(&one);
    sigaddset(&one, signal);
    while (sigtimedwait(&one, NULL, &now) < 0 && errno == EINTR) {
    }
}

int sg_own_write(int fd, const void *bytes, size_t size)
{
    int saved = errno, cancel = sg_cancel_off();
    sigset_t raised, before, pending;
    sigemptyset(&raised);
    sigaddset(&raised, SIGPIPE);
    sigaddset(&raised, SIGXFSZ);
    sigemptyset(&pending);
    sigprocmask(SIG_BLOCK, &raised, &before); /* of this thread, on Linux */
    sigpending(&pending);
    int error = sg_write_all(fd, bytes, size);
    if (error == -EPIPE)
        signal_take(SIGPIPE, &before, &pending);
    if (error == -EFBIG)
        signal_take(SIGXFSZ, &before, &pending);
    sigprocmask(SIG_SETMASK, &before, NULL);
    sg_cancel_restore(cancel);
    errno = saved;
    return error;
}
