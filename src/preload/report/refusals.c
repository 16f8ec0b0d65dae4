#include "process/glibc_symver.h"

#include "report/refusals.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inspect/core_state.h"
#include "process/log.h"
#include "process/process.h"
#include "base/refusal.h"
#include "base/rest.h"
#include "report/oom_report.h"
#include "services/recorder.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/torch_mode.h"

enum {
    OPEN_MOST = 16,    /* threads at once; a further one's refusal counts as a failure at once */
    TEXT_BYTES = 4096,
    ADDRESS_BITS = 47, /* of a process; who asks for more has miscalculated, and lacks no memory */
};

enum refusal_state { REFUSAL_NONE, REFUSAL_OPEN, REFUSAL_WRITTEN };

/* Written by its thread, but for the end of the process, which may be another's: whoever changes the state has it. */
static struct refusal {
    atomic_int state; /* enum refusal_state; WRITTEN: it is being written, or settled */
    _Atomic(const struct sg_thread *) thread; /* whose it is; a place that is free serves whichever thread comes next */
    struct sg_core *core;
    int device;
    bool torch; /* PyTorch's cache asked */
    size_t bytes;
    size_t length; /* of the text; 0: none is wanted */
    char text[TEXT_BYTES];
} refusals[OPEN_MOST];
atomic_uint sg_refusals_open;

static atomic_flag reported = ATOMIC_FLAG_INIT;
static atomic_bool has_reported;

/* True if a report on a refusal of that size may be written. A size beyond all addresses is a mistake of the program's,
   which no report on memory would explain. */
static bool is_wanted(size_t bytes)
{
    enum sg_oom_report wanted = sg_process_conf()->oom_report;
    return !(bytes >> ADDRESS_BITS) && wanted != SG_OOM_NEVER &&
        !(wanted == SG_OOM_FIRST && atomic_load_explicit(&has_reported, memory_order_relaxed));
}

/* Also by a signal handler. */
static void refusal_print(const char *text, size_t length)
{
    if (!length || (atomic_flag_test_and_set(&reported) && sg_process_conf()->oom_report == SG_OOM_FIRST))
        return;
    atomic_store(&has_reported, true);
    sg_log_write(text, length);
}

/* A program may die of what it was refused before anything else is called: by abort(), or at an address that it did not
   get. Where nobody handles such a signal, the report comes first. */
static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
enum { DEADLY = sizeof deadly / sizeof *deadly };

static atomic_bool handles_signals;

/* The signal is sent again as it was, with its code and address, and comes once this returns to where it had come. So a
   core file, a debugger and whoever waits for the process find what they find natively. */
static void refusal_die(int signal, siginfo_t *info, void *context)
{
    (void)context;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int i = 0; i < OPEN_MOST; i++) {
        int open = REFUSAL_OPEN;
        if (atomic_compare_exchange_strong(&refusals[i].state, &open, REFUSAL_WRITTEN))
            refusal_print(refusals[i].text, refusals[i].length);
    }
    sigaction(signal, &standard, NULL);
    if (!info || syscall(SYS_rt_tgsigqueueinfo, getpid(), (pid_t)syscall(SYS_gettid), signal, info) != 0)
        raise(signal);
}

/* Only signals that nobody handles are taken. A program's own handler, set before or after, stays in force. */
static void handle_signals(void)
{
    if (atomic_exchange(&handles_signals, true))
        return;
    for (int i = 0; i < DEADLY; i++) {
        struct sigaction now, ours = {.sa_sigaction = refusal_die, .sa_flags = SA_ONSTACK | SA_SIGINFO};
        if (sigaction(deadly[i], NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
            sigaction(deadly[i], &ours, NULL);
    }
}

/* The last refusal is settled, so signals end the process as natively again. */
static void leave_signals(void)
{
    if (!atomic_exchange(&handles_signals, false))
        return;
    for (int i = 0; i < DEADLY; i++) {
        struct sigaction now, standard = {.sa_handler = SIG_DFL};
        if (sigaction(deadly[i], NULL, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == refusal_die)
            sigaction(deadly[i], &standard, NULL);
    }
}

/* The thread's own; NULL: none is open. For example, thread 1 had place 0, and its refusal is settled. Thread 2 is refused now and has
   place 0. Thread 1 still names that place, and what it is served next is no answer to thread 2. */
static struct refusal *refusal_own(void)
{
    unsigned at = sg_self.refusal;
    struct refusal *refusal = at ? &refusals[at - 1] : NULL;
    return refusal && atomic_load(&refusal->state) == REFUSAL_OPEN && atomic_load(&refusal->thread) == &sg_self
               ? refusal
               : NULL;
}

/* The thread may open another one. The last that is closed gives the signals back. */
static void close_refusal(struct refusal *refusal)
{
    atomic_store(&refusal->state, REFUSAL_NONE);
    if (atomic_fetch_sub(&sg_refusals_open, 1) == 1)
        leave_signals();
}

/* It has failed. `raised`: the trace does not show that, so it is noted there. */
static void refusal_fail(struct refusal *refusal, bool raised)
{
    int open = REFUSAL_OPEN;
    if (!atomic_compare_exchange_strong(&refusal->state, &open, REFUSAL_WRITTEN))
        return;
    if (raised)
        sg_core_settled(refusal->core, refusal->device, SEGALLOC_SETTLED_FAILED, 0);
    sg_core_failed(refusal->core, refusal->device);
    refusal_print(refusal->text, refusal->length);
    close_refusal(refusal);
}

/* Another try takes the place of the one before. */
static struct refusal *open_refusal(size_t bytes)
{
    struct refusal *refusal = refusal_own();
    if (refusal && !sg_refusal_is_another_try(refusal->bytes, bytes)) {
        refusal_fail(refusal, false);
        refusal = NULL;
    }
    int open = REFUSAL_OPEN;
    if (refusal)
        return atomic_compare_exchange_strong(&refusal->state, &open, REFUSAL_WRITTEN) ? refusal : NULL;
    for (unsigned i = 0; i < OPEN_MOST; i++) {
        int none = REFUSAL_NONE;
        if (!atomic_compare_exchange_strong(&refusals[i].state, &none, REFUSAL_WRITTEN))
            continue;
        atomic_fetch_add(&sg_refusals_open, 1);
        atomic_store(&refusals[i].thread, &sg_self);
        sg_self.refusal = i + 1;
        return &refusals[i];
    }
    return NULL;
}

void sg_refusals_add(struct sg_core *core, int device, size_t bytes)
{
    char text[TEXT_BYTES];
    int cancel = sg_cancel_off();
    size_t length = is_wanted(bytes) ? sg_oom_report(core, device, text, sizeof text) : 0;
    if (length >= sizeof text)
        length = sizeof text - 1;
    struct refusal *refusal = open_refusal(bytes);
    if (refusal) {
        refusal->core = core;
        refusal->device = device;
        refusal->bytes = bytes;
        refusal->torch = false;
        refusal->length = length;
        memcpy(refusal->text, text, length);
        atomic_store(&refusal->state, REFUSAL_OPEN);
        if (length)
            handle_signals();
    } else {
        sg_core_settled(core, device, SEGALLOC_SETTLED_FAILED, 0);
        sg_core_failed(core, device);
        refusal_print(text, length);
    }
    sg_cancel_restore(cancel);
}

void sg_refusals_add_outside(uint64_t devices, enum segalloc_outside by, size_t bytes)
{
    CUcontext context;
    int device;
    if (sg_process_over() || sg_thread_inside())
        return;
    struct sg_core *core = sg_captures_active() ? sg_enter() : sg_enter_traced();
    if (!core)
        return;
    if (devices)
        device = __builtin_ctzll(devices);
    else if (sg_contexts_current(core, &context, &device) != CUDA_SUCCESS)
        device = 0;
    sg_recorder_device(sg_process_driver(), device);
    sg_core_refused_outside(core, device, by, bytes);
    sg_refusals_add(core, device, bytes);
    sg_recorder_tick(core, device);
    sg_leave();
}

static void make_good(struct refusal *refusal)
{
    int open = REFUSAL_OPEN;
    if (atomic_compare_exchange_strong(&refusal->state, &open, REFUSAL_WRITTEN))
        close_refusal(refusal);
}

/* Half of what was refused, or more, makes it good. Less is other work, so the refusal was a failure. */
void sg_refusals_serve(size_t bytes)
{
    struct refusal *refusal = refusal_own();
    if (refusal && sg_refusal_is_made_good(refusal->bytes, bytes)) {
        sg_core_settled(refusal->core, refusal->device, SEGALLOC_SETTLED_SERVED, bytes);
        make_good(refusal);
    } else if (refusal) {
        refusal_fail(refusal, false);
    }
}

void sg_refusals_serve_elsewhere(size_t bytes)
{
    struct refusal *refusal = refusal_own();
    if (!refusal || !sg_refusal_is_made_good(refusal->bytes, bytes))
        return;
    sg_core_settled(refusal->core, refusal->device, SEGALLOC_SETTLED_ELSEWHERE, bytes);
    make_good(refusal);
}

/* Without PyTorch's cache the refusal is an error at once. With it, the cache gives idle segments back and asks again.
   */
void sg_refusals_of_torch(void)
{
    struct refusal *refusal = refusal_own();
    if (refusal && sg_torch_direct() && !sg_torch_switched() && !sg_self.torch_cached)
        refusal_fail(refusal, true);
    else if (refusal)
        refusal->torch = true;
}

void sg_refusals_raise(void)
{
    struct refusal *refusal = refusal_own();
    if (refusal)
        refusal_fail(refusal, true);
}

static atomic_uint uncounted; /* questions: programs ask before there is a core */

void sg_refusals_count_questions(struct sg_core *core, int device)
{
    unsigned times = atomic_exchange_explicit(&uncounted, 0, memory_order_relaxed);
    if (times)
        sg_core_asked(core, device, times);
}

void sg_refusals_ask(void)
{
    atomic_fetch_add_explicit(&uncounted, 1, memory_order_relaxed);
    struct refusal *refusal = atomic_load_explicit(&sg_refusals_open, memory_order_relaxed) ? refusal_own() : NULL;
    if (refusal && refusal->torch)
        refusal_fail(refusal, true);
}

void sg_refusals_end(void)
{
    for (int i = 0; i < OPEN_MOST; i++)
        refusal_fail(&refusals[i], false);
}

void sg_refusals_forget(void)
{
    for (int i = 0; i < OPEN_MOST; i++)
        atomic_store(&refusals[i].state, REFUSAL_NONE);
    if (atomic_exchange(&sg_refusals_open, 0))
        leave_signals();
}
