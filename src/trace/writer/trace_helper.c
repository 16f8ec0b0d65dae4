#include "writer/trace_helper.h"

#include <signal.h>
#include <sys/prctl.h>

#include "writer/trace_ring.h"

static void writer_futex_wait(_Atomic uint32_t *word, uint32_t seen, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, seen, timeout, NULL, 0);
}

/* The helper: makes blocks, and sleeps until an event has taken one. */
static void *writer_help(void *user)
{
    struct sg_trace_writer *writer = user;
    prctl(PR_SET_NAME, "segalloc-trace", 0, 0, 0);
    while (!atomic_load(&writer->stop)) {
        /* Read before the work: a wake in the meantime changes the word, and the wait returns at once. */
        uint32_t seen = atomic_load_explicit(&writer->wake, memory_order_acquire);
        sg_writer_turn(writer);
        if (!sg_writer_refill(writer) && !atomic_load(&writer->stop))
            writer_futex_wait(&writer->wake, seen, NULL);
    }
    sg_writer_wake(&writer->gone);
    return NULL;
}

void sg_writer_start_helper(struct sg_trace_writer *writer)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    atomic_store(&writer->gone, 0);
    if (!writer->options.create_thread || pthread_attr_init(&attributes))
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* of this thread, on Linux; the new one inherits it */
    writer->helper = writer->options.create_thread(&thread, &attributes, writer_help, writer) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

bool sg_writer_stop_helper(struct sg_trace_writer *writer)
{
    if (!writer->helper)
        return true;
    atomic_store(&writer->stop, 1);
    sg_writer_wake(&writer->wake);
    for (int i = 0; i < 200 && !atomic_load(&writer->gone); i++)
        writer_futex_wait(&writer->gone, 0, &(struct timespec){.tv_nsec = 10000000});
    return atomic_load(&writer->gone) != 0;
}
