/* Threads of ours, by themselves: what is done on one, what is waited for and for how long, and what becomes of it where
   there can be no thread. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rest.h"
#include "process/capture_mode.h"
#include "track/captures.h"
#include "process/worker_thread.h"
#include "process/process.h"
#include "process/symbols.h"
#include "track/context_pins.h"
#include "track/context_wait.h"

__thread struct sg_thread sg_self;

static struct {
    struct sg_conf conf;
    int refused;     /* what starting a thread answers */
    bool no_symbol;
    int looked_up;
    atomic_bool go, there; /* an errand may end; has begun */
    atomic_int done;
    int use;         /* of the context that is waited for; below 0: it has gone */
    atomic_int uses;
    atomic_bool hold_enter; /* a thread is kept from entering the context */
    atomic_int waits;
    CUresult waited;
} fake;

static int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user)
{
    return fake.refused ? fake.refused : pthread_create(thread, attributes, run, user);
}

static void *find(void *handle, const char *name)
{
    int (*function)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = create;
    void *symbol;
    (void)handle;
    assert_string_equal(name, "pthread_create");
    fake.looked_up++;
    memcpy(&symbol, &function, sizeof symbol);
    return fake.no_symbol ? NULL : symbol;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return find;
}

const struct sg_conf *sg_process_conf(void)
{
    return &fake.conf;
}

bool sg_capture_mode_relax(CUstreamCaptureMode *ret)
{
    (void)ret;
    return true;
}

CUresult sg_captures_wait_aside(void)
{
    atomic_fetch_add(&fake.waits, 1);
    return fake.waited;
}

int sg_context_pin_current(CUcontext context)
{
    (void)context;
    atomic_store(&fake.there, true);
    while (atomic_load(&fake.hold_enter))
        sched_yield();
    atomic_fetch_add(&fake.uses, fake.use >= 0);
    return fake.use;
}

void sg_context_unpin_current(int use)
{
    (void)use;
    atomic_fetch_sub(&fake.uses, 1);
}

static int start(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.conf.wait_limit = 60;
    return 0;
}

/* On a thread that is ours, which no signal of the program's reaches. */
static CUresult look_around(void *user)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    bool good = sg_self.inside && sg_self.aside && sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1);
    *(pthread_t *)user = pthread_self();
    atomic_fetch_add(&fake.done, 1); /* last: `user` may be gone as soon as the count is seen */
    return good ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_UNKNOWN;
}

static CUresult stay(void *user)
{
    (void)user;
    atomic_store(&fake.there, true);
    while (!atomic_load(&fake.go))
        sched_yield();
    atomic_fetch_add(&fake.done, 1);
    return CUDA_SUCCESS;
}

static void errands_are_done_on_a_thread_of_ours(void **state)
{
    sigset_t blocked;
    (void)state;
    for (int i = 0; i < 3; i++) {
        pthread_t thread = pthread_self();
        assert_int_equal(sg_worker_run(look_around, &thread), CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(atomic_load(&fake.done), i + 1);
        assert_false(pthread_equal(thread, pthread_self()));
    }
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    assert_false(sigismember(&blocked, SIGTERM)); /* this thread's are as before */
    assert_false(sg_self.inside || sg_self.aside);
}

/* A thread that could not be had is none that goes on. */
static void without_threads_nothing_is_done(void **state)
{
    pthread_t thread;
    (void)state;
    for (int i = 0; i < 2; i++) {
        fake.refused = i ? EAGAIN : 0;
        fake.no_symbol = !i;
        assert_int_equal(sg_worker_run(look_around, &thread), CUDA_ERROR_OPERATING_SYSTEM);
        assert_int_equal(sg_context_wait(NULL), CUDA_ERROR_OPERATING_SYSTEM);
        assert_false(sg_worker_begin(look_around, &thread));
    }
    assert_int_equal(atomic_load(&fake.done), 0);
    fake.refused = 0;
    assert_int_equal(sg_worker_run(look_around, &thread), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_true(sg_worker_begin(look_around, &thread));
    while (atomic_load(&fake.done) < 2)
        sched_yield();
}

/* What was given up goes on, and nothing else begins until it is over. */
static void errands_are_given_up_in_time(void **state)
{
    pthread_t thread;
    CUresult result;
    (void)state;
    fake.conf.wait_limit = 0.001;
    assert_int_equal(sg_worker_run(stay, NULL), CUDA_ERROR_NOT_READY);
    fake.conf.wait_limit = 60;
    assert_int_equal(sg_worker_run(look_around, &thread), CUDA_ERROR_NOT_READY);
    assert_int_equal(atomic_load(&fake.done), 0);
    atomic_store(&fake.go, true);
    while ((result = sg_worker_run(look_around, &thread)) == CUDA_ERROR_NOT_READY)
        sched_yield();
    assert_int_equal(result, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&fake.done), 2);
}

static void *run_another(void *ret)
{
    pthread_t thread;
    *(CUresult *)ret = sg_worker_run(look_around, &thread);
    return NULL;
}

/* By whichever thread of the program's. What nobody waits for is apart from what somebody does. */
static void errands_are_done_one_after_another(void **state)
{
    pthread_t thread[2];
    CUresult second = CUDA_SUCCESS;
    (void)state;
    assert_int_equal(pthread_create(&thread[0], NULL, run_another, &second), 0);
    pthread_join(thread[0], NULL);
    assert_int_equal(second, CUDA_ERROR_ILLEGAL_ADDRESS);
    while (!sg_worker_begin(stay, NULL)) /* the thread of a test before may not be over yet */
        sched_yield();
    assert_false(sg_worker_begin(stay, NULL)); /* nobody waits for it, so nothing else is begun so */
    while (!atomic_load(&fake.there))
        sched_yield();
    assert_int_equal(sg_worker_run(look_around, &thread[1]), CUDA_ERROR_ILLEGAL_ADDRESS); /* that is apart */
    atomic_store(&fake.go, true);
    while (!sg_worker_begin(look_around, &thread[1]))
        sched_yield();
    while (atomic_load(&fake.done) < 4)
        sched_yield();
}

static void *let_go(void *unused)
{
    sg_rest(2000000);
    atomic_store(&fake.go, true);
    return unused;
}

/* As long as the limit; nothing that was not begun is waited for. */
static void what_was_begun_is_awaited(void **state)
{
    pthread_t thread;
    (void)state;
    while (sg_worker_has_begun()) /* that of a test before */
        sched_yield();
    assert_false(sg_worker_await_begun());
    assert_true(sg_worker_begin(stay, NULL));
    assert_true(sg_worker_has_begun());
    fake.conf.wait_limit = 0.001;
    assert_false(sg_worker_await_begun());
    fake.conf.wait_limit = 60;
    assert_int_equal(pthread_create(&thread, NULL, let_go, NULL), 0);
    assert_true(sg_worker_await_begun());
    assert_false(sg_worker_has_begun());
    pthread_join(thread, NULL);
}

static void contexts_are_waited_for_while_they_are_there(void **state)
{
    (void)state;
    fake.waited = CUDA_ERROR_LAUNCH_FAILED;
    assert_int_equal(sg_context_wait(NULL), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(atomic_load(&fake.waits), 1);
    fake.use = -1;
    assert_int_equal(sg_context_wait(NULL), CUDA_SUCCESS); /* its work has gone with it */
    assert_int_equal(atomic_load(&fake.waits), 1);
    assert_int_equal(atomic_load(&fake.uses), 0);
}

/* Nobody would hear what comes of it. */
static void contexts_are_not_waited_for_in_vain(void **state)
{
    pthread_t thread;
    (void)state;
    atomic_store(&fake.hold_enter, true);
    fake.conf.wait_limit = 0.001;
    assert_int_equal(sg_context_wait(NULL), CUDA_ERROR_NOT_READY);
    while (!atomic_load(&fake.there))
        sched_yield();
    atomic_store(&fake.hold_enter, false);
    fake.conf.wait_limit = 60;
    while (sg_worker_run(look_around, &thread) == CUDA_ERROR_NOT_READY)
        sched_yield();
    assert_int_equal(atomic_load(&fake.waits), 0);
    assert_int_equal(atomic_load(&fake.uses), 0);
}

/* Not within the core, whose locks a thread with the loader's lock may wait for. */
static void the_loader_is_asked_once(void **state)
{
    pthread_t thread;
    (void)state;
    sg_worker_prepare();
    fake.looked_up = 0;
    assert_int_equal(sg_worker_run(look_around, &thread), CUDA_ERROR_ILLEGAL_ADDRESS);
    sg_worker_prepare();
    assert_int_equal(fake.looked_up, 0);
}

#define TEST(name) cmocka_unit_test_setup(name, start)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_threads_nothing_is_done), /* first: what starts threads is kept once it is found */
        TEST(the_loader_is_asked_once),
        TEST(errands_are_done_on_a_thread_of_ours),
        TEST(errands_are_given_up_in_time),
        TEST(errands_are_done_one_after_another),
        TEST(what_was_begun_is_awaited),
        TEST(contexts_are_waited_for_while_they_are_there),
        TEST(contexts_are_not_waited_for_in_vain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
