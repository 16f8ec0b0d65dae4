/* Calls that name contexts of others, and who ends those: the one waits for the other, whichever came first, for as
   many contexts and threads as there are. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "track/context_pins.h"

/* context_pins.c calls the latter in its place: membarrier's commands by linux/membarrier.h, which is newer than some
   that this is built with. */
#undef syscall
long syscall(long number, ...);
long counted_syscall(long number, ...);
enum { PRIVATE_EXPEDITED = 8, REGISTER_PRIVATE_EXPEDITED = 16 };
static int fences, registrations;
static bool refused;

__thread struct sg_thread sg_self;
__thread struct sg_thread *sg_self_found;

static CUresult pushed;
static int pushes;

struct sg_thread *sg_thread_find(void)
{
    sg_self_found = &sg_self;
    return sg_self_found;
}

long counted_syscall(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    int command = va_arg(arguments, int), flags = va_arg(arguments, int);
    va_end(arguments);
    fences += command == PRIVATE_EXPEDITED;
    registrations += command == REGISTER_PRIVATE_EXPEDITED;
    errno = EPERM;
    return refused ? -1 : syscall(number, command, flags);
}

static CUresult push(CUcontext context)
{
    (void)context;
    pushes += pushed == CUDA_SUCCESS;
    return pushed;
}

static CUresult pop(CUcontext *ret)
{
    *ret = NULL;
    pushes--;
    return CUDA_SUCCESS;
}

const struct sg_driver *sg_process_driver(void)
{
    static const struct sg_driver driver = {.ctx_push = push, .ctx_pop = pop};
    return &driver;
}

/* Only one thread changes the table here. */
void sg_process_assert_locked(enum sg_process_lock guard)
{
    assert_int_equal(guard, SG_LOCK_CONTEXTS);
}

static CUcontext context_of(uintptr_t number)
{
    return (CUcontext)(64 * (number + 1));
}

static void add(uintptr_t number)
{
    (void)sg_context_add_locked(&(struct sg_context_info){.context = context_of(number)});
}

static int end(void **state)
{
    (void)state;
    for (uintptr_t i = 0; i < SG_CONTEXTS_KNOWN; i++)
        sg_context_remove_locked(context_of(i));
    return 0;
}

static void nobody_names_what_is_not_there(void **state)
{
    (void)state;
    assert_true(sg_context_pin(NULL) < 0);
    assert_true(sg_context_pin(context_of(0)) < 0);
    assert_true(sg_context_pin_current(context_of(0)) < 0);
    assert_false(sg_context_is_pinned(context_of(0)));
    assert_false(sg_context_is_ending(context_of(0)));
    sg_context_ending_locked(context_of(0), 1); /* nothing */
    assert_false(sg_context_is_ending(context_of(0)));
    assert_int_equal(pushes, 0);
}

static void who_ends_sees_who_uses(void **state)
{
    (void)state;
    add(0);
    add(1);
    int use = sg_context_pin(context_of(0));
    assert_true(use >= 0);
    assert_true(sg_context_is_pinned(context_of(0)));
    assert_false(sg_context_is_pinned(context_of(1)));
    sg_context_unpin(use);
    assert_false(sg_context_is_pinned(context_of(0)));
    use = sg_context_pin_current(context_of(1));
    assert_true(use >= 0 && pushes == 1 && sg_context_is_pinned(context_of(1)));
    sg_context_unpin_current(use);
    assert_true(pushes == 0 && !sg_context_is_pinned(context_of(1)));
    pushed = CUDA_ERROR_INVALID_CONTEXT; /* the driver has ended it */
    assert_true(sg_context_pin_current(context_of(1)) < 0);
    assert_false(sg_context_is_pinned(context_of(1)));
    pushed = CUDA_SUCCESS;
}

/* An end that failed counts once; one that came twice, or for a context that has come back, not below nothing. */
static void ends_are_counted(void **state)
{
    (void)state;
    add(0);
    sg_context_ending_locked(context_of(0), 1);
    sg_context_ending_locked(context_of(0), 1);
    assert_true(sg_context_is_ending(context_of(0)));
    sg_context_ending_locked(context_of(0), -1);
    assert_true(sg_context_is_ending(context_of(0)));
    sg_context_ending_locked(context_of(0), -1);
    assert_false(sg_context_is_ending(context_of(0)));
    sg_context_ending_locked(context_of(0), -1);
    assert_false(sg_context_is_ending(context_of(0)));
    sg_context_ending_locked(context_of(0), 1);
    assert_true(sg_context_is_ending(context_of(0)));
    sg_context_remove_locked(context_of(0));
    sg_context_remove_locked(context_of(0));
    assert_false(sg_context_is_ending(context_of(0)));
    add(0);
    int use = sg_context_pin(context_of(0)); /* none is under way any more */
    assert_true(use >= 0);
    sg_context_unpin(use);
}

static void *name_it(void *ret)
{
    *(int *)ret = sg_context_pin(context_of(0));
    return NULL;
}

/* Whoever names a context that is being ended waits for what comes of that. */
static void who_comes_later_waits(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        int use = -2;
        pthread_t thread;
        add(0);
        sg_context_ending_locked(context_of(0), 1);
        assert_int_equal(pthread_create(&thread, NULL, name_it, &use), 0);
        for (int i = 0; i < 50; i++)
            sg_context_pins_rest();
        if (ends)
            sg_context_remove_locked(context_of(0));
        else
            sg_context_ending_locked(context_of(0), -1);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(use >= 0, !ends);
        if (use >= 0) {
            assert_true(sg_context_is_pinned(context_of(0)));
            sg_context_unpin(use);
        }
        sg_context_remove_locked(context_of(0));
    }
}

/* Where the kernel makes no fences, everybody makes his own: the first of these tests. */
static void short_way_is_closed_where_the_kernel_refuses(void **state)
{
    (void)state;
    refused = true;
    add(0);
    errno = 0;
    sg_context_pins_use_membarrier();
    assert_int_equal(errno, 0);
    sg_context_unpin(sg_context_pin(context_of(0)));
    assert_false(sg_context_pin_cached(sg_this_thread(), context_of(0)));
    assert_false(sg_context_is_pinned(context_of(0)));
    assert_int_equal(registrations, 1);
    assert_int_equal(fences, 0);
    refused = false;
}

/* The short way is of contexts that were named before, and nothing has happened to since. */
static void short_way_ends_with_any_change(void **state)
{
    struct sg_thread *self = sg_this_thread();
    (void)state;
    add(0);
    sg_context_unpin(sg_context_pin(context_of(0)));
    assert_false(sg_context_pin_cached(self, context_of(0)));  /* nobody expects others */
    sg_context_pins_use_membarrier();
    sg_context_pins_use_membarrier();
    sg_context_unpin(sg_context_pin(context_of(0)));
    if (!sg_context_pin_cached(self, context_of(0))) {
        skip(); /* the kernel makes no fences for others */
        return;
    }
    registrations = fences = 0;
    assert_true(sg_context_is_pinned(context_of(0)));
    assert_int_equal(fences, 1); /* who ends makes those of the others */
    sg_context_pins_use_membarrier();
    assert_int_equal(registrations, 0); /* that was done */
    sg_context_unpin_cached(self);
    assert_false(sg_context_is_pinned(context_of(0)));
    assert_false(sg_context_pin_cached(self, NULL));
    assert_false(sg_context_pin_cached(self, context_of(5)));
    sg_context_ending_locked(context_of(0), 1);
    assert_false(sg_context_pin_cached(self, context_of(0)));
    assert_false(sg_context_is_pinned(context_of(0)));
}

/* More than there are places for: whoever names one of those finds it gone, and waits for nobody. */
static void contexts_beyond_the_places_are_not_there(void **state)
{
    (void)state;
    for (uintptr_t i = 0; i <= SG_CONTEXTS_KNOWN; i++)
        add(i);
    int use = sg_context_pin(context_of(SG_CONTEXTS_KNOWN - 1));
    assert_true(use >= 0);
    sg_context_unpin(use);
    assert_true(sg_context_pin(context_of(SG_CONTEXTS_KNOWN)) < 0);
    sg_context_remove_locked(context_of(7));
    add(SG_CONTEXTS_KNOWN); /* has its place */
    use = sg_context_pin(context_of(SG_CONTEXTS_KNOWN));
    assert_true(use >= 0);
    sg_context_unpin(use);
    sg_context_remove_locked(context_of(SG_CONTEXTS_KNOWN));
}

static void *use_it(void *ret)
{
    int use = sg_context_pin(context_of(0));
    bool seen = sg_context_is_pinned(context_of(0));
    bool quick = sg_context_pin_cached(sg_this_thread(), context_of(0));
    if (use >= 0)
        sg_context_unpin(use);
    if (quick)
        sg_context_unpin_cached(sg_this_thread());
    *(int *)ret += use >= 0 && seen ? 1 : 0;
    return NULL;
}

/* Threads beyond the rows share the last, where the short way is closed. */
static void threads_beyond_the_rows_share_one(void **state)
{
    enum { THREADS = 80 };
    int good = 0;
    (void)state;
    add(0);
    sg_context_pins_use_membarrier();
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, use_it, &good), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(good, THREADS);
    assert_false(sg_context_is_pinned(context_of(0)));
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(short_way_is_closed_where_the_kernel_refuses),
        TEST(nobody_names_what_is_not_there),
        TEST(who_ends_sees_who_uses),
        TEST(ends_are_counted),
        TEST(who_comes_later_waits),
        TEST(short_way_ends_with_any_change),
        TEST(contexts_beyond_the_places_are_not_there),
        TEST(threads_beyond_the_rows_share_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
