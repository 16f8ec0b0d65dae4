/* An entry goes once its stream was found idle, if no call for it was under way, and none has come since the question.

   For example, thread 1 asks about stream 5, noted 3 times by then. Thread 2 notes it a fourth time, and its call has not reached
   the driver yet. The answer "idle" is then of the time before that call: the entry stays. */
#include "check/held.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "process/hooks.h"
#include "process/locks.h"
#include "process/process.h"
#include "track/captures.h"
#include "track/context_pins.h"
#include "track/stream_handle.h"
#include "track/streams.h"

enum { HELD = 64, HELD_NONE = -1 };

/* A stream of each thread is one for each, by the number of the thread. */
struct held {
    CUstream named; /* NULL: the entry is free */
    CUcontext context;
    long thread;
    unsigned calls; /* under way */
    uint64_t noted; /* how often so far */
};

/* Guarded by SG_LOCK_CHECK, but for reads of `count`. */
static struct {
    struct held stream[HELD];
    atomic_uint count;
    bool too_many; /* at some time: `count` stays above HELD */
} table;

static atomic_uint running; /* functions of the host */

/* A function of the host as the program gave it. The driver's thread that runs it frees this. One that is never run is never freed: an
   error of the driver's may be of earlier work, and the function runs all the same. */
struct held_function {
    CUhostFn call;
    CUstreamCallback callback;
    void *user;
};

static struct held_function function_taken(void *user)
{
    struct held_function function = *(struct held_function *)user;
    free(user);
    return function;
}

static void function_run(void *user)
{
    struct held_function function = function_taken(user);
    atomic_fetch_add(&running, 1);
    function.call(function.user);
    atomic_fetch_sub(&running, 1);
}

static void callback_run(CUstream stream, CUresult status, void *user)
{
    struct held_function function = function_taken(user);
    atomic_fetch_add(&running, 1);
    function.callback(stream, status, function.user);
    atomic_fetch_sub(&running, 1);
}

/* False: it stays as it is. */
static bool function_wrap(struct held_function function, void **user)
{
    bool known = (function.call || function.callback) && !sg_captures_active();
    struct held_function *own = known ? malloc(sizeof *own) : NULL;
    if (own) {
        *own = function;
        *user = own;
    }
    return own != NULL;
}

void sg_held_wrap_function(CUhostFn *call, void **user)
{
    if (function_wrap((struct held_function){.call = *call, .user = *user}, user))
        *call = function_run;
}

void sg_held_wrap_callback(CUstreamCallback *call, void **user)
{
    if (function_wrap((struct held_function){.callback = *call, .user = *user}, user))
        *call = callback_run;
}

/* The entry of a stream; with `named` NULL a free one. HELD: there is none. Under SG_LOCK_CHECK. */
static int held_find(CUstream named, CUcontext context, long thread)
{
    int at = 0;
    while (at < HELD && (table.stream[at].named != named ||
                            (named && (table.stream[at].context != context || table.stream[at].thread != thread))))
        at++;
    return at;
}

int sg_held_begin(CUstream stream, bool per_thread)
{
    if (!sg_enter())
        return HELD_NONE;
    CUstream named = sg_stream_named(stream, per_thread);
    CUcontext context = sg_streams_context_of(named);
    long thread = named == CU_STREAM_PER_THREAD ? syscall(SYS_gettid) : 0;
    sg_process_lock(SG_LOCK_CHECK);
    int at = held_find(named, context, thread);
    if (at == HELD && (at = held_find(NULL, NULL, 0)) < HELD) {
        table.stream[at] = (struct held){.named = named, .context = context, .thread = thread};
        atomic_fetch_add(&table.count, 1);
    }
    if (at == HELD) {
        table.too_many = true;
        atomic_store(&table.count, HELD + 1);
        at = HELD_NONE;
    } else {
        table.stream[at].calls++;
        table.stream[at].noted++;
    }
    sg_process_unlock(SG_LOCK_CHECK);
    sg_leave();
    return at;
}

void sg_held_end(int held)
{
    if (held < 0 || !sg_enter())
        return;
    sg_process_lock(SG_LOCK_CHECK);
    if (table.stream[held].calls)
        table.stream[held].calls--;
    sg_process_unlock(SG_LOCK_CHECK);
    sg_leave();
}

/* Under SG_LOCK_CHECK. */
static void held_drop(int at)
{
    table.stream[at] = (struct held){0};
    if (!table.too_many)
        atomic_fetch_sub(&table.count, 1);
}

/* True if a stream that was held is so still. A default stream has its name only where its context is current. The legacy one
   stands for that of each thread. */
static bool held_ask(const struct held *held, CUcontext context)
{
    bool by_default = held->named == CU_STREAM_LEGACY || held->named == CU_STREAM_PER_THREAD;
    int use = sg_context_pin(held->context);
    if (use < 0) /* it is gone, with its work */
        return false;
    CUresult result = CUDA_ERROR_NOT_READY;
    if (!by_default || held->context == context)
        result = sg_real()->cuStreamQuery(by_default ? CU_STREAM_LEGACY : held->named);
    sg_context_unpin(use);
    return result == CUDA_ERROR_NOT_READY;
}

bool sg_held_any(CUcontext context)
{
    bool any = false;
    for (int at = 0; at < HELD && atomic_load_explicit(&table.count, memory_order_relaxed); at++) {
        sg_process_lock(SG_LOCK_CHECK);
        struct held held = table.stream[at];
        sg_process_unlock(SG_LOCK_CHECK);
        if (!held.named)
            continue;
        if (held.calls || held_ask(&held, context)) {
            any = true;
            continue;
        }
        sg_process_lock(SG_LOCK_CHECK);
        struct held *own = &table.stream[at];
        if (own->named == held.named && own->context == held.context && own->noted == held.noted)
            held_drop(at);
        else
            any = true;
        sg_process_unlock(SG_LOCK_CHECK);
    }
    return any || atomic_load(&running) || atomic_load_explicit(&table.count, memory_order_relaxed) > HELD;
}

bool sg_held_some(void)
{
    return atomic_load_explicit(&table.count, memory_order_relaxed) ||
           atomic_load_explicit(&running, memory_order_relaxed);
}

/* Entries of the stream, or of the context. */
static void held_gone(CUstream stream, CUcontext context)
{
    sg_process_lock(SG_LOCK_CHECK);
    for (int at = 0; at < HELD; at++)
        if (table.stream[at].named && (stream ? table.stream[at].named == stream : table.stream[at].context == context))
            held_drop(at);
    sg_process_unlock(SG_LOCK_CHECK);
}

void sg_held_stream_gone(CUstream stream)
{
    if (stream)
        held_gone(stream, NULL);
}

void sg_held_context_gone(CUcontext context)
{
    held_gone(NULL, context);
}
