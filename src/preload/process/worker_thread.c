#include "process/worker_thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "track/captures.h"
#include "clock.h"
#include "process/process.h"
#include "process/symbols.h"
#include "rest.h"
#include "track/context_pins.h"

bool sg_helper_start(void *(*run)(void *), void *user)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = sg_dlsym()(RTLD_DEFAULT, "pthread_create"); /* by name: it has moved between libraries */
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

/* What a thread of ours does for others, one thing at a time. */
static struct errand {
    atomic_bool busy; /* from its beginning until both who asked and who does it have done with it */
    atomic_int hands; /* of those two */
    CUresult (*run)(void *user);
    void *user;
    CUresult result;
    atomic_bool done;
    atomic_bool given_up; /* who asked has stopped waiting */
} awaited, unawaited;

static void let_go(struct errand *errand)
{
    if (atomic_fetch_sub(&errand->hands, 1) == 1)
        atomic_store(&errand->busy, false);
}

static void *do_errand(void *user)
{
    struct errand *errand = user;
    CUstreamCaptureMode mode;
    sg_self.inside = true;
    sg_self.aside = true;
    (void)sg_captures_relax(&mode); /* a capture of another thread's is none of its business */
    errand->result = errand->run(errand->user);
    atomic_store(&errand->done, true);
    let_go(errand);
    return NULL;
}

/* False: it goes on. */
static bool take(struct errand *errand)
{
    bool idle = false;
    return atomic_compare_exchange_strong(&errand->busy, &idle, true);
}

/* Begins one that was taken. False: there can be no thread, and it is let go. */
static bool begin(struct errand *errand, CUresult (*run)(void *user), void *user, int hands)
{
    errand->run = run;
    errand->user = user;
    atomic_store(&errand->done, false);
    atomic_store(&errand->given_up, false);
    atomic_store(&errand->hands, hands);
    bool begun = sg_helper_start(do_errand, errand);
    if (!begun)
        atomic_store(&errand->busy, false);
    return begun;
}

/* Waits for a little, of the time that may be waited for; false: there is none left. */
static bool rest(uint64_t *left_ns)
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

CUresult sg_helper_run(CUresult (*run)(void *user), void *user)
{
    uint64_t left_ns = (uint64_t)(sg_life_conf()->wait_limit * 1e9);
    while (!take(&awaited))
        if (atomic_load(&awaited.given_up) || !rest(&left_ns))
            return CUDA_ERROR_NOT_READY;
    if (!begin(&awaited, run, user, 2))
        return CUDA_ERROR_OPERATING_SYSTEM;
    while (!atomic_load(&awaited.done) && rest(&left_ns)) {
    }
    atomic_store(&awaited.given_up, !atomic_load(&awaited.done));
    CUresult result = atomic_load(&awaited.done) ? awaited.result : CUDA_ERROR_NOT_READY;
    let_go(&awaited);
    return result;
}

bool sg_helper_begin(CUresult (*run)(void *user), void *user)
{
    return take(&unawaited) && begin(&unawaited, run, user, 1);
}

static CUresult wait(void *context)
{
    int use = sg_users_enter(context);
    if (use < 0)
        return CUDA_SUCCESS; /* its work has gone with it */
    CUresult result = atomic_load(&awaited.given_up) ? CUDA_ERROR_NOT_READY : sg_captures_wait_aside();
    sg_users_leave(use);
    return result;
}

CUresult sg_helper_wait_for_context(CUcontext context)
{
    return sg_helper_run(wait, context);
}
