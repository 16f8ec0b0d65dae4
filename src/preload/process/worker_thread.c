/* Two errands, each guarded by its flag `busy`. Two *hands* hold an errand that is waited for: the thread that asked
   and the thread that does it. The last of them to let go makes the place free, so neither writes into an errand that
   is another's by then.

   For example, a thread gives up after 20 s: it sets `given_up` and lets go, 1 hand is left. The errand ends 10 s
   later, sees that nobody waits, lets go too, and `busy` is false. */
#include "process/worker_thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "process/capture_mode.h"
#include "process/process.h"
#include "process/symbols.h"
#include "base/rest.h"

static void *_Atomic thread_creator;

void sg_worker_prepare(void)
{
    if (!atomic_load_explicit(&thread_creator, memory_order_acquire)) /* by name: it has moved between libraries */
        atomic_store(&thread_creator, sg_dlsym()(RTLD_DEFAULT, "pthread_create"));
}

/* Signals are held off while the thread is made, since it inherits the mask. Handlers of the program must not run in a
   thread of ours. */
bool sg_worker_start(void *(*run)(void *), void *user)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    sg_worker_prepare();
    void *symbol = atomic_load(&thread_creator);
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    memcpy(&create, &symbol, sizeof symbol);
    if (!symbol || pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* of this thread, on Linux; the new one inherits it */
    bool started = create(&thread, &attributes, run, user) == 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

/* Work that a thread of ours does for others, one piece at a time. */
static struct errand {
    atomic_bool busy; /* from its beginning until both who asked and who does it have done with it */
    atomic_int hands; /* of those two */
    CUresult (*run)(void *user);
    void *user;
    CUresult result;
    atomic_bool done;
    atomic_bool given_up; /* who asked has stopped waiting */
} awaited, unawaited;

static void worker_let_go(struct errand *errand)
{
    if (atomic_fetch_sub(&errand->hands, 1) == 1)
        atomic_store(&errand->busy, false);
}

/* The body of a thread of ours. It is inside, so that the driver's calls it makes are handed on. It is relaxed, so that
   it ruins no capture. */
static void *do_errand(void *user)
{
    struct errand *errand = user;
    CUstreamCaptureMode mode;
    sg_self.inside = true;
    sg_self.aside = true;
    (void)sg_capture_mode_relax(&mode); /* a capture of another thread's is none of its business */
    errand->result = errand->run(errand->user);
    atomic_store(&errand->done, true);
    worker_let_go(errand);
    return NULL;
}

/* False: it goes on. */
static bool worker_take(struct errand *errand)
{
    bool idle = false;
    return atomic_compare_exchange_strong(&errand->busy, &idle, true);
}

/* Begins one that was taken. False: there can be no thread, and it is let go. */
static bool worker_begin(struct errand *errand, CUresult (*run)(void *user), void *user, int hands)
{
    errand->run = run;
    errand->user = user;
    atomic_store(&errand->done, false);
    atomic_store(&errand->given_up, false);
    atomic_store(&errand->hands, hands);
    bool begun = sg_worker_start(do_errand, errand);
    if (!begun)
        atomic_store(&errand->busy, false);
    return begun;
}

/* Waits for a little, of the time that may be waited for; false: there is none left. */
static bool worker_rest(uint64_t *left_ns)
{
    enum { SLICE_NS = 200000 };
    uint64_t began = sg_clock_coarse_ns();
    if (*left_ns == 0)
        return false;
    sg_rest(SLICE_NS);
    uint64_t took = sg_clock_coarse_ns() - began;
    took = took > SLICE_NS ? took : SLICE_NS;
    *left_ns -= took < *left_ns ? took : *left_ns;
    return true;
}

/* Waits for the place, begins, waits for the end, all within one limit. Giving up is noted before the hand is let go,
   so that the errand can see it. */
CUresult sg_worker_run(CUresult (*run)(void *user), void *user)
{
    uint64_t left_ns = (uint64_t)(sg_process_conf()->wait_limit * 1e9);
    while (!worker_take(&awaited))
        if (atomic_load(&awaited.given_up) || !worker_rest(&left_ns))
            return CUDA_ERROR_NOT_READY;
    if (!worker_begin(&awaited, run, user, 2))
        return CUDA_ERROR_OPERATING_SYSTEM;
    while (!atomic_load(&awaited.done) && worker_rest(&left_ns)) {
    }
    atomic_store(&awaited.given_up, !atomic_load(&awaited.done));
    CUresult result = atomic_load(&awaited.done) ? awaited.result : CUDA_ERROR_NOT_READY;
    worker_let_go(&awaited);
    return result;
}

bool sg_worker_begin(CUresult (*run)(void *user), void *user)
{
    return worker_take(&unawaited) && worker_begin(&unawaited, run, user, 1);
}

bool sg_worker_has_begun(void)
{
    return atomic_load(&unawaited.busy);
}

bool sg_worker_await_begun(void)
{
    uint64_t left_ns = (uint64_t)(sg_process_conf()->wait_limit * 1e9);
    bool any = sg_worker_has_begun();
    while (sg_worker_has_begun() && worker_rest(&left_ns)) {
    }
    return any && !sg_worker_has_begun();
}

bool sg_worker_given_up(void)
{
    return atomic_load(&awaited.given_up);
}
