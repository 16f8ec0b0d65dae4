#include "helper.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "captures.h"
#include "clock.h"
#include "life.h"
#include "resolve.h"
#include "users.h"

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

/* The one wait for a context that is under way. */
static struct {
    atomic_bool busy; /* from its beginning until both who asked and who waits have done with it */
    atomic_int hands; /* of those two */
    CUcontext context;
    CUresult result;
    atomic_bool done;
} wait_under_way;

static void let_go(void)
{
    if (atomic_fetch_sub(&wait_under_way.hands, 1) == 1)
        atomic_store(&wait_under_way.busy, false);
}

static void *wait(void *unused)
{
    const struct sg_driver *driver = sg_life_driver();
    CUstreamCaptureMode mode;
    CUcontext popped;
    (void)unused;
    sg_self.inside = true;
    int use = sg_users_begin(wait_under_way.context);
    bool there = use >= 0; /* or its work has gone with it */
    wait_under_way.result = there ? driver->ctx_push(wait_under_way.context) : CUDA_SUCCESS;
    if (there && wait_under_way.result == CUDA_SUCCESS) {
        (void)sg_captures_relax(&mode); /* a capture of another thread's is none of its business */
        wait_under_way.result = driver->ctx_synchronize();
        (void)driver->ctx_pop(&popped);
    }
    if (there)
        sg_users_end(use);
    atomic_store(&wait_under_way.done, true);
    let_go();
    return NULL;
}

CUresult sg_helper_wait_for_context(void)
{
    const struct timespec slice = {.tv_nsec = 200000};
    uint64_t limit = (uint64_t)(sg_life_conf()->wait_limit * 1e9), waited = 0;
    CUcontext context = NULL;
    bool idle = false;
    CUresult result = sg_life_driver()->ctx_get_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!atomic_compare_exchange_strong(&wait_under_way.busy, &idle, true))
        return CUDA_ERROR_NOT_READY;
    wait_under_way.context = context;
    atomic_store(&wait_under_way.done, false);
    atomic_store(&wait_under_way.hands, 2);
    if (!sg_helper_start(wait, NULL)) {
        atomic_store(&wait_under_way.busy, false);
        return CUDA_ERROR_NOT_READY;
    }
    while (!atomic_load(&wait_under_way.done) && waited < limit) {
        uint64_t began = sg_clock_coarse_ns();
        nanosleep(&slice, NULL);
        uint64_t took = sg_clock_coarse_ns() - began;
        waited += took > (uint64_t)slice.tv_nsec ? took : (uint64_t)slice.tv_nsec;
    }
    result = atomic_load(&wait_under_way.done) ? wait_under_way.result : CUDA_ERROR_NOT_READY;
    let_go();
    return result;
}
