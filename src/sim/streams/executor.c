#include "streams/executor.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "calls.h"
#include "space/link.h"
#include "space/managed.h"
#include "streams/schedule.h"

enum { THREADS_MAX = 64, BATCH = 32 };

static pthread_cond_t work_ready = PTHREAD_COND_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static CUstream ready_first, ready_last;
static unsigned ready_count, idle, threads;
static bool stopping;

static bool caller_helps; /* the caller waits for the work that it queues now, and can do it itself */

static void *executor_work(void *unused);

static void executor_start_thread(void)
{
    /* Signals of the program are handled on the program's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, executor_work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_detach(thread);
        threads++;
    } else if (threads == 0) {
        fprintf(stderr, "segalloc simulator: no thread to run the device's work on: error %d of pthread_create\n",
            error);
        abort();
    }
}

/* Puts the stream on the list of ready streams, or on the waiters of the stream that its head depends on. */
static void stream_advance(CUstream stream)
{
    if (stream->running || stream->ready || stream->waiting || !stream->head || stopping)
        return;
    struct sim_deps *deps = stream->head->deps;
    while (deps && deps->count) {
        struct sim_dep *dep = &deps->at[deps->count - 1];
        if (dep->stream->completed < dep->position) {
            sim_stream_ref(stream);
            stream->waiting = true;
            stream->next_waiter = dep->stream->waiters;
            dep->stream->waiters = stream;
            return;
        }
        sim_stream_unref(dep->stream);
        deps->count--;
    }
    sim_stream_ref(stream);
    stream->ready = true;
    stream->next_ready = NULL;
    if (ready_last)
        ready_last->next_ready = stream;
    else
        ready_first = stream;
    ready_last = stream;
    /* Each ready stream has a thread to itself: a host function that waits for another stream's work does not delay
       that work. */
    ready_count++;
    if (sim_scheduled())
        pthread_cond_broadcast(&progress); /* a waiting thread may run it */
    if (caller_helps || sim_scheduled())
        return;
    if (ready_count > idle && threads < THREADS_MAX)
        executor_start_thread();
    else
        pthread_cond_signal(&work_ready);
}

/* Drops the reference of the context's list. The caller has another one. */
static void stream_unlink(CUstream stream)
{
    CUstream *link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    stream->linked = false;
    assert(stream->refs > 1);
    stream->refs--;
}

void sim_executor_announce(CUstream stream)
{
    if (!stream->head)
        stream->completed = stream->submitted;
    CUstream waiter = stream->waiters;
    stream->waiters = NULL;
    while (waiter) {
        CUstream next = waiter->next_waiter;
        waiter->waiting = false;
        stream_advance(waiter);
        sim_stream_unref(waiter);
        waiter = next;
    }
    if (stream->completed >= stream->host_wants) {
        stream->host_wants = UINT64_MAX;
        pthread_cond_broadcast(&progress);
    }
    if (!stream->head && !stream->alive && stream->linked)
        stream_unlink(stream);
}

void sim_work_perform(struct sim_work *work)
{
    if (work->busy_ns && !sim_scheduled()) {
        struct timespec busy = {(time_t)(work->busy_ns / 1000000000u), (long)(work->busy_ns % 1000000000u)};
        nanosleep(&busy, NULL);
    }
    if (work->run) {
        sim_in_host_function = work->host_function;
        work->run(work);
        sim_in_host_function = false;
    }
}

static void work_execute(CUstream stream, struct sim_work *work)
{
    sim_managed_work(work);
    sim_link_work(work);
    if (work->run || work->busy_ns) {
        sim_unlock();
        sim_work_perform(work);
        sim_lock();
    }
    stream->head = work->next;
    if (!stream->head)
        stream->tail = NULL;
    stream->completed = work->position;
    if (work->host_sees)
        sim_order_host_after(&work->after);
    if (work->finish)
        work->finish(work);
    sim_work_free(work);
    sim_executor_announce(stream);
}

static bool stream_can_run(CUstream stream)
{
    struct sim_work *work = stream->head;
    if (!work || stopping)
        return false;
    for (unsigned i = 0; work->deps && i < work->deps->count; i++) {
        if (work->deps->at[i].stream->completed < work->deps->at[i].position)
            return false;
    }
    return true;
}

static CUstream ready_take(CUstream *link, CUstream before)
{
    CUstream stream = *link;
    *link = stream->next_ready;
    if (ready_last == stream)
        ready_last = before;
    ready_count--;
    stream->ready = false;
    return stream;
}

static bool work_can_help(const struct sim_work *work)
{
    return work && !work->host_function && !work->may_wait && !work->busy_ns;
}

/* Does a batch of the stream's work. `helping` leaves work that may take long to the simulator's threads. Owns the
   reference of the list of ready streams. */
static void stream_run_batch(CUstream stream, bool helping, unsigned limit)
{
    stream->running = true;
    for (unsigned i = 0; i < limit && stream_can_run(stream) && (!helping || work_can_help(stream->head)); i++)
        work_execute(stream, stream->head);
    stream->running = false;
    stream_advance(stream);
    sim_stream_unref(stream);
}

/* A waiting thread does some ready work, which saves waking another thread. */
static bool executor_help(void)
{
    CUstream before = NULL;
    for (CUstream *link = &ready_first; *link; before = *link, link = &(*link)->next_ready) {
        if (work_can_help((*link)->head)) {
            stream_run_batch(ready_take(link, before), true, BATCH);
            return true;
        }
    }
    return false;
}

static void stream_run_one(CUstream stream)
{
    CUstream before = NULL, *link = &ready_first;
    while (*link != stream) {
        before = *link;
        link = &(*link)->next_ready;
    }
    stream_run_batch(ready_take(link, before), false, 1);
}

static bool stream_may_run(CUstream stream, bool wanted)
{
    const struct sim_work *work = stream->head;
    return stream_can_run(stream) && !(work->blocked && work->blocked(work)) &&
           (wanted || (sim_schedule_due(work->allocated) && !sim_schedule_holds(stream->id)));
}

/* Runs one piece of work of some stream. `wanted`: a thread waits for work. */
static bool executor_run_any(bool wanted)
{
    unsigned count = 0;
    for (CUstream s = ready_first; s; s = s->next_ready)
        count += stream_may_run(s, wanted);
    unsigned chosen = count ? sim_schedule_random(count) : 0;
    for (CUstream s = ready_first; s && count; s = s->next_ready) {
        if (!stream_may_run(s, wanted))
            continue;
        if (chosen == 0) {
            stream_run_one(s);
            return true;
        }
        chosen--;
    }
    return false;
}

void sim_schedule_step(void)
{
    if (!sim_scheduled() || sim_in_host_function)
        return;
    for (unsigned left = sim_schedule_appetite(); left && executor_run_any(false); left--) {
    }
}

/* A program is waiting when it polls one thing repeatedly and makes no other call. */
void sim_schedule_polled(const void *what, bool ready)
{
    enum { PATIENCE = 16 };
    static _Thread_local const void *asked;
    static _Thread_local uint64_t call;
    static _Thread_local unsigned times;
    bool again = what == asked && call + 1 == sim_thread_calls && !ready;
    times = again ? times + 1 : 0;
    asked = what;
    call = sim_thread_calls;
    if (sim_scheduled() && !sim_in_host_function && times >= PATIENCE)
        executor_run_any(true);
}

void sim_schedule_allocated(void)
{
    sim_schedule_count_allocation();
    sim_schedule_step();
}

/* Runs the piece of work that the head of `stream` depends on. */
static bool executor_run_needed(CUstream stream)
{
    for (bool deeper = true; deeper && !stream->ready;) {
        const struct sim_deps *deps = stream->head && !stream->running ? stream->head->deps : NULL;
        deeper = false;
        for (unsigned i = 0; deps && i < deps->count && !deeper; i++) {
            deeper = deps->at[i].stream->completed < deps->at[i].position;
            stream = deeper ? deps->at[i].stream : stream;
        }
    }
    if (!stream->ready || !stream_may_run(stream, true))
        return false;
    stream_run_one(stream);
    return true;
}

/* One step of a waiting thread under a schedule, where no other thread runs work. */
static void executor_wait_scheduled(CUstream stream)
{
    enum sim_strays strays = sim_schedule_strays();
    bool strayed = strays != SIM_STRAYS_NONE && executor_run_any(/* wanted */ strays == SIM_STRAYS_ANY);
    if (!strayed && !executor_run_needed(stream) && !executor_run_any(true)) {
        /* Another thread runs the work, or the work waits for a value in memory. */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&progress, sim_mutex(), &until);
    }
}

void sim_wait_elsewhere(void)
{
    const struct timespec pause = {.tv_nsec = 50000};
    if (sim_scheduled() && executor_run_any(true))
        return;
    sim_unlock();
    nanosleep(&pause, NULL);
    sim_lock();
}

static void *executor_work(void *unused)
{
    (void)unused;
    sim_lock();
    for (;;) {
        while (!ready_first && !stopping) {
            idle++;
            pthread_cond_wait(&work_ready, sim_mutex());
            idle--;
        }
        if (stopping)
            break;
        stream_run_batch(ready_take(&ready_first, NULL), false, BATCH);
    }
    threads--;
    pthread_cond_broadcast(&progress);
    sim_unlock();
    return NULL;
}

CUresult sim_executor_wait(CUstream stream, uint64_t position)
{
    while (stream->completed < position && !stopping) {
        if (sim_scheduled()) {
            executor_wait_scheduled(stream);
            continue;
        }
        if (executor_help())
            continue;
        if (stream->host_wants > position)
            stream->host_wants = position;
        pthread_cond_wait(&progress, sim_mutex());
    }
    return stopping ? CUDA_ERROR_DEINITIALIZED : stream->context->error;
}

/* The caller has a reference to the stream. */
static void stream_run_at_once(CUstream stream)
{
    if (stream->running || stream->ready || stream->waiting)
        return;
    stream->running = true;
    while (stream_can_run(stream) && work_can_help(stream->head))
        work_execute(stream, stream->head);
    stream->running = false;
}

void sim_executor_start(CUstream stream, const struct sim_work *work, bool caller_waits)
{
    caller_helps = caller_waits && work_can_help(work); /* before the work runs, and is freed with that */
    if (sim.config.at_once && !sim_scheduled())
        stream_run_at_once(stream);
    stream_advance(stream);
    caller_helps = false;
}

bool sim_executor_stopped(void)
{
    return stopping;
}

/* Threads are detached, since a thread inside a host function cannot be joined in bounded time. */
void sim_executor_stop(void)
{
    enum { PATIENCE_S = 1 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    sim_lock();
    stopping = true;
    pthread_cond_broadcast(&work_ready);
    pthread_cond_broadcast(&progress);
    while (threads > 0 && !sim_in_host_function) {
        if (pthread_cond_timedwait(&progress, sim_mutex(), &until) != 0)
            break;
    }
    sim_unlock();
}
