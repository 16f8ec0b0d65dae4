#include "graphs/graph.h"
#include "hazard/hazard.h"
#include "memory/managed.h"
#include "hazard/owner.h"
#include "streams/schedule.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS_MAX = 64, BATCH = 32 };

static pthread_cond_t work_ready = PTHREAD_COND_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static CUstream ready_first, ready_last;
static unsigned ready_count, idle, threads;
static bool stopping;
static bool caller_waits; /* whoever submits now waits at once, and does the work itself where that can be */

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_stream_ref(CUstream stream)
{
    stream->refs++;
}

void sim_stream_unref(CUstream stream)
{
    assert(stream->refs > 0);
    if (--stream->refs == 0) {
        assert(!stream->head && !stream->alive && !stream->waiters);
        sim_order_stream_end(stream);
        free(stream);
    }
}

bool sim_stream_idle(const struct CUstream_st *stream)
{
    return stream->completed == stream->submitted;
}

static void drop(struct sim_work *work)
{
    work->dropped = true;
    if (work->finish)
        work->finish(work);
    sim_work_free(work);
}

static void *worker(void *unused);

static void start_thread(void)
{
    /* Signals of the program are handled on the program's threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, worker, NULL);
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

/* Puts the stream among those that can run, or among the waiters of what its head depends on. */
static void advance(CUstream stream)
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
    /* Each ready stream has a thread of its own to go to, so that a host function that waits for another stream's
       work cannot hold that work up. */
    ready_count++;
    if (sim_scheduled())
        pthread_cond_broadcast(&progress); /* for whoever waits and may run it */
    if (caller_waits || sim_scheduled())
        return;
    if (ready_count > idle && threads < THREADS_MAX)
        start_thread();
    else
        pthread_cond_signal(&work_ready);
}

/* The caller has a reference beside the one that goes. */
static void unlink_stream(CUstream stream)
{
    CUstream *link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    stream->linked = false;
    assert(stream->refs > 1);
    stream->refs--;
}

/* After `completed` or the queue has changed. The caller has a reference. */
static void announce(CUstream stream)
{
    if (!stream->head)
        stream->completed = stream->submitted;
    CUstream waiter = stream->waiters;
    stream->waiters = NULL;
    while (waiter) {
        CUstream next = waiter->next_waiter;
        waiter->waiting = false;
        advance(waiter);
        sim_stream_unref(waiter);
        waiter = next;
    }
    if (stream->completed >= stream->host_wants) {
        stream->host_wants = UINT64_MAX;
        pthread_cond_broadcast(&progress);
    }
    if (!stream->head && !stream->alive && stream->linked)
        unlink_stream(stream);
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

static void execute(CUstream stream, struct sim_work *work)
{
    sim_managed_work(work);
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
    announce(stream);
}

static bool head_can_run(CUstream stream)
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

static CUstream take_ready(CUstream *link, CUstream before)
{
    CUstream stream = *link;
    *link = stream->next_ready;
    if (ready_last == stream)
        ready_last = before;
    ready_count--;
    stream->ready = false;
    return stream;
}

static bool can_help(const struct sim_work *work)
{
    return work && !work->host_function && !work->may_wait && !work->busy_ns;
}

/* Does a batch of the stream's work; `helping` leaves what may take long to the simulator's threads. Owns the reference
   that the list of ready streams had. */
static void run_batch(CUstream stream, bool helping, unsigned limit)
{
    stream->running = true;
    for (unsigned i = 0; i < limit && head_can_run(stream) && (!helping || can_help(stream->head)); i++)
        execute(stream, stream->head);
    stream->running = false;
    advance(stream);
    sim_stream_unref(stream);
}

/* A thread that waits does some work that is ready, rather than have another thread woken for it. */
static bool help(void)
{
    CUstream before = NULL;
    for (CUstream *link = &ready_first; *link; before = *link, link = &(*link)->next_ready) {
        if (can_help((*link)->head)) {
            run_batch(take_ready(link, before), true, BATCH);
            return true;
        }
    }
    return false;
}

static void run_one(CUstream stream)
{
    CUstream before = NULL, *link = &ready_first;
    while (*link != stream) {
        before = *link;
        link = &(*link)->next_ready;
    }
    run_batch(take_ready(link, before), false, 1);
}

static bool may_run(CUstream stream, bool wanted)
{
    const struct sim_work *work = stream->head;
    return head_can_run(stream) && !(work->blocked && work->blocked(work)) &&
           (wanted || sim_schedule_due(work->allocated));
}

/* Runs one piece of work of some stream; `wanted`: somebody waits. */
static bool run_any(bool wanted)
{
    unsigned count = 0;
    for (CUstream s = ready_first; s; s = s->next_ready)
        count += may_run(s, wanted);
    unsigned chosen = count ? sim_schedule_random(count) : 0;
    for (CUstream s = ready_first; s && count; s = s->next_ready) {
        if (!may_run(s, wanted))
            continue;
        if (chosen == 0) {
            run_one(s);
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
    for (unsigned left = sim_schedule_appetite(); left && run_any(false); left--) {
    }
}

/* A program that asks again and again for one thing, and does nothing else, is waiting; and while it waits, work goes
   on. */
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
        run_any(true);
}

void sim_schedule_allocated(void)
{
    sim_schedule_count_allocation();
    sim_schedule_step();
}

/* Runs the piece of work that `stream` is held up by. */
static bool run_needed(CUstream stream)
{
    for (bool deeper = true; deeper && !stream->ready;) {
        const struct sim_deps *deps = stream->head && !stream->running ? stream->head->deps : NULL;
        deeper = false;
        for (unsigned i = 0; deps && i < deps->count && !deeper; i++) {
            deeper = deps->at[i].stream->completed < deps->at[i].position;
            stream = deeper ? deps->at[i].stream : stream;
        }
    }
    if (!stream->ready || !may_run(stream, true))
        return false;
    run_one(stream);
    return true;
}

/* What a waiting thread does where no other thread runs work. */
static void schedule_while_waiting(CUstream stream)
{
    if ((!sim_schedule_strays() || !run_any(true)) && !run_needed(stream) && !run_any(true)) {
        /* Another thread is at it, or the work waits for a word of memory. */
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
    if (sim_scheduled() && run_any(true))
        return;
    sim_unlock();
    nanosleep(&pause, NULL);
    sim_lock();
}

static void *worker(void *unused)
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
        run_batch(take_ready(&ready_first, NULL), false, BATCH);
    }
    threads--;
    pthread_cond_broadcast(&progress);
    sim_unlock();
    return NULL;
}

/* The caller has a reference to the stream. */
static CUresult wait_until(CUstream stream, uint64_t position)
{
    while (stream->completed < position && !stopping) {
        if (sim_scheduled()) {
            schedule_while_waiting(stream);
            continue;
        }
        if (help())
            continue;
        if (stream->host_wants > position)
            stream->host_wants = position;
        pthread_cond_wait(&progress, sim_mutex());
    }
    return stopping ? CUDA_ERROR_DEINITIALIZED : stream->context->error;
}

CUresult sim_wait(CUstream stream, uint64_t position)
{
    sim_stream_ref(stream);
    CUresult result = wait_until(stream, position);
    sim_stream_unref(stream);
    return result;
}

CUresult sim_wait_stream(CUstream stream)
{
    return sim_wait(stream, stream->submitted);
}

/* What the legacy stream's rules and cuCtxWaitEvent make `work` wait for. */
static int add_implied(CUstream stream, struct sim_work *work)
{
    CUcontext context = stream->context;
    int error = 0;
    if (stream->kind == SIM_STREAM_LEGACY) {
        for (CUstream s = context->streams; s && !error; s = s->next) {
            if (s != stream && s->kind != SIM_STREAM_MARKER && !(s->flags & CU_STREAM_NON_BLOCKING))
                error = sim_work_depend(work, s, s->submitted);
        }
    } else if (stream->kind != SIM_STREAM_MARKER && !(stream->flags & CU_STREAM_NON_BLOCKING) && context->legacy) {
        error = sim_work_depend(work, context->legacy, context->legacy->submitted);
    }
    struct sim_deps *barriers = stream->kind == SIM_STREAM_MARKER ? NULL : context->barriers;
    for (unsigned i = 0; barriers && i < barriers->count && !error; i++)
        error = sim_work_depend(work, barriers->at[i].stream, barriers->at[i].position);
    return error;
}

/* The caller has a reference to the stream, which may be destroyed while this waits. */
static CUresult wait_for_room(CUstream stream)
{
    unsigned depth = sim.config.depth;
    CUresult result = stream->context->error;
    if (stream->kind != SIM_STREAM_MARKER && stream->submitted - stream->completed >= depth)
        result = wait_until(stream, stream->submitted - depth + depth / 8 + 1);
    if (stopping)
        return CUDA_ERROR_DEINITIALIZED;
    return result == CUDA_SUCCESS && !stream->alive ? CUDA_ERROR_CONTEXT_IS_DESTROYED : result;
}

/* The caller has a reference to the stream. */
static void run_at_once(CUstream stream)
{
    if (stream->running || stream->ready || stream->waiting)
        return;
    stream->running = true;
    while (head_can_run(stream) && can_help(stream->head))
        execute(stream, stream->head);
    stream->running = false;
}

static CUresult submit(CUstream stream, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    if (sim_capturing(stream)) {
        if (waits)
            work->capturable = false;
        if (ret_position)
            *ret_position = stream->submitted;
        return sim_capture_work(stream, work);
    }
    sim_stream_ref(stream);
    CUresult result = sim_capture_legacy(stream);
    if (result == CUDA_SUCCESS)
        sim_schedule_step();
    if (result == CUDA_SUCCESS)
        result = wait_for_room(stream);
    if (result == CUDA_SUCCESS && add_implied(stream, work) != 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        work->context = stream->context;
        work->stream = stream;
        work->position = ++stream->submitted;
        if (stream->tail)
            stream->tail->next = work;
        else
            stream->head = work;
        stream->tail = work;
        work->allocated = sim_schedule_allocations();
        sim_order_submitted(stream, work);
        sim_hazard_submitted(stream, work);
        if (ret_position)
            *ret_position = work->position;
        bool helps = waits && can_help(work); /* asked first: what runs at once is gone then */
        if (sim.config.at_once && !sim_scheduled())
            run_at_once(stream);
        caller_waits = helps;
        advance(stream);
        caller_waits = false;
    } else {
        drop(work);
    }
    sim_stream_unref(stream);
    return result;
}

CUresult sim_submit(CUstream stream, struct sim_work *work, uint64_t *ret_position)
{
    return submit(stream, work, false, ret_position);
}

CUresult sim_submit_and_wait(CUstream stream, struct sim_work *work)
{
    uint64_t position;
    work->host_sees = true;
    sim_stream_ref(stream);
    CUresult result = submit(stream, work, true, &position);
    if (result == CUDA_SUCCESS)
        result = wait_until(stream, position);
    sim_stream_unref(stream);
    return result;
}

static CUresult context_point(CUcontext context, struct sim_work *work, bool waits, uint64_t *ret_position)
{
    if (!work && !(work = sim_work_new(0, NULL, NULL)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        for (CUstream s = sim_context_covers(context, c) ? c->streams : NULL; s; s = s->next) {
            if (s != context->marker && sim_work_depend(work, s, s->submitted) != 0) {
                drop(work);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
    }
    return submit(context->marker, work, waits, ret_position);
}

CUresult sim_context_point(CUcontext context, struct sim_work *work, uint64_t *ret_position)
{
    return context_point(context, work, false, ret_position);
}

CUresult sim_wait_context(CUcontext context)
{
    bool busy = false;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        for (CUstream s = sim_context_covers(context, c) ? c->streams : NULL; s; s = s->next)
            busy |= !sim_stream_idle(s);
    }
    struct sim_clock seen = {0};
    sim_order_context(context, &seen);
    uint64_t position;
    CUresult result = busy ? context_point(context, NULL, true, &position) : context->error;
    if (busy && result == CUDA_SUCCESS)
        result = sim_wait(context->marker, position);
    sim_order_host_after(&seen);
    sim_clock_clear(&seen);
    return result;
}

CUresult sim_wait_device(struct sim_device *device)
{
    CUresult result = CUDA_SUCCESS;
    for (CUcontext c = sim.contexts; c; c = c->next) {
        if (c->alive && c->device == device) {
            CUresult waited = sim_wait_context(c);
            result = result == CUDA_SUCCESS ? waited : result;
        }
    }
    return result;
}

CUresult sim_stream_new(CUcontext context, enum sim_stream_kind kind, unsigned flags, int priority, CUstream *ret)
{
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->context = context;
    stream->kind = kind;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++sim.next_id;
    stream->refs = 1;
    stream->alive = stream->linked = true;
    stream->host_wants = UINT64_MAX;
    sim_order_stream_new(stream);
    stream->next = context->streams;
    context->streams = stream;
    sim_handle_add(&stream->handle, SIM_KIND_STREAM);
    *ret = stream;
    return CUDA_SUCCESS;
}

void sim_stream_close(CUstream stream, bool forget)
{
    assert(stream->alive);
    sim_handle_drop(&stream->handle);
    stream->alive = false;
    sim_order_stream_closed(stream);
    sim_stream_ref(stream);
    sim_capture_stream_gone(stream);
    if (forget) {
        struct sim_work *keep = stream->running ? stream->head : NULL;
        struct sim_work *work = keep ? keep->next : stream->head;
        if (keep)
            keep->next = NULL;
        stream->head = stream->tail = keep;
        while (work) {
            struct sim_work *next = work->next;
            drop(work);
            work = next;
        }
    }
    announce(stream);
    sim_stream_unref(stream);
}

/* Threads are detached: one that is inside a function of the program cannot be joined in bounded time. */
void sim_sched_stop(void)
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
