/* Signal handlers that allocate or free in the midst of a call that holds a lock of the preload layer. They do not wait for
   their own thread. A handler is a call between two others here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

#include "config/conf_read.h"
#include "process/environment.h"
#include "process/process.h"
#include "process/process_state.h"
#include "process/symbols.h"
#include "process/upward_calls.h"
#include "rest.h"
#include "track/captures.h"
#include "track/context_wait.h"
#include "track/contexts.h"
#include "track/held_outside.h"

enum { LONGEST_S = 60, BYTES = 1 << 20 };

static struct {
    int reads, starts;
    bool held_off; /* all signals, while the configuration was read */
    int core;
} fake;

static bool are_all_held_off(void)
{
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, SIGALRM) && sigismember(&now, SIGUSR1) && sigismember(&now, SIGPROF) &&
        sigismember(&now, SIGSEGV);
}

unsigned sg_conf_load(struct sg_conf *conf, const struct sg_conf_inputs *inputs, sg_conf_warn_fn *warn, void *user)
{
    (void)inputs, (void)warn, (void)user;
    memset(conf, 0, sizeof *conf);
    fake.reads++;
    fake.held_off = are_all_held_off();
    return 0;
}

static enum sg_process_state start_core(enum sg_start_needs needs)
{
    (void)needs;
    fake.starts++;
    sg_process.core = (struct sg_core *)&fake.core;
    atomic_store(&sg_process.state, SG_PROCESS_LIVE);
    return SG_PROCESS_LIVE;
}

static void allocates(void)
{
}

const struct sg_upward_calls sg_upward_calls = {.start = start_core, .allocates = allocates};

void *sg_cuda_symbol(const char *name)
{
    (void)name;
    return &fake;
}

const char *sg_driver_load(struct sg_driver *driver, void *(*lookup)(void *user, const char *symbol), void *user)
{
    (void)driver, (void)lookup, (void)user;
    return "cuInit";
}

static int start(void **state)
{
    (void)state;
    fake.starts = fake.reads = 0;
    sg_process.core = NULL;
    atomic_store(&sg_process.state, SG_PROCESS_EARLY);
    atomic_store(&sg_process.conf_read, false);
    alarm(LONGEST_S); /* a wait for oneself would be for ever */
    return 0;
}

/* A handler within any of the locks is served by the driver: the core's locks come before those. */
static void a_lock_is_held(void **state)
{
    (void)state;
    for (int live = 0; live < 2; live++) {
        for (int i = 0; i < SG_LOCK_COUNT; i++) {
            sg_process_lock((enum sg_process_lock)i);
            assert_null(sg_enter_allocation());
            assert_null(sg_enter());
            assert_int_equal(fake.starts, live);
            sg_process_unlock((enum sg_process_lock)i);
        }
        assert_ptr_equal(sg_enter_allocation(), &fake.core);
        assert_null(sg_enter()); /* it is inside */
        sg_leave();
        assert_ptr_equal(sg_enter(), &fake.core);
        sg_leave();
        assert_int_equal(fake.starts, 1);
    }
}

/* No handler comes while the configuration is read, and as before afterwards. */
static void the_configuration_is_read(void **state)
{
    (void)state;
    sigset_t some, before, after;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    sigprocmask(SIG_SETMASK, &some, &before);
    (void)sg_process_conf();
    (void)sg_process_conf();
    sigprocmask(SIG_SETMASK, &before, &after);
    assert_int_equal(fake.reads, 1);
    assert_true(fake.held_off);
    assert_true(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGUSR1) && !sigismember(&after, SIGALRM));
}

static uint64_t held(void)
{
    struct sg_outside outside = {0};
    struct sg_outside most;
    sg_held_outside(0, &outside, &most);
    return outside.bytes[SEGALLOC_OUTSIDE_PHYSICAL];
}

/* Within the table of memory elsewhere a handler's own calls go unnoted, and the table stays as it is. */
static void memory_elsewhere_is_noted(void **state)
{
    (void)state;
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 1, 0, BYTES);
    assert_int_equal(held(), BYTES);
    (void)sg_process_driver(); /* looked for before anything is noted */
    sg_process_lock(SG_LOCK_OUTSIDE);
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 2, 0, BYTES);
    sg_outside_mapped(0x1000, BYTES, 1);
    sg_outside_unmapped(0x1000, BYTES);
    sg_outside_pool((CUmemoryPool)&fake, 0);
    sg_outside_pool_gone((CUmemoryPool)&fake);
    sg_outside_measured(SEGALLOC_OUTSIDE_PHYSICAL, 2, 1);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), -1);
    assert_int_equal(held(), 0);
    sg_process_unlock(SG_LOCK_OUTSIDE);
    assert_int_equal(held(), BYTES);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), 0);
    assert_int_equal(held(), 0);
}

/* A file leads to physical memory after its handle's release. Whoever imports it holds it again, under whichever number. */
static void what_a_file_leads_to_is_held_by_its_imports(void **state)
{
    enum { FILE_NUMBER = 7, OTHERS = 8 };
    (void)state;
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 1, 0, BYTES);
    sg_outside_exported(1, FILE_NUMBER);
    assert_int_equal(sg_outside_imported(2, OTHERS), -1);
    assert_int_equal(sg_outside_imported(2, FILE_NUMBER), 0);
    assert_int_equal(sg_outside_imported(1, FILE_NUMBER), 0); /* the same number again */
    assert_int_equal(sg_outside_imported(1, FILE_NUMBER), 0);
    assert_int_equal(held(), BYTES);
    for (int handles = 3; handles > 0; handles--) {
        assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), 0);
        assert_int_equal(held(), BYTES);
    }
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), -1);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 2), 0);
    assert_int_equal(held(), 0);
    assert_int_equal(sg_outside_imported(3, FILE_NUMBER), 0); /* nobody held it but the file */
    assert_int_equal(held(), BYTES);
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 4, 0, 2 * BYTES);
    sg_outside_exported(4, FILE_NUMBER); /* that file was closed */
    assert_int_equal(sg_outside_imported(5, FILE_NUMBER), 0);
    assert_int_equal(held(), 3 * BYTES);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 3), 0);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 4), 0);
    assert_int_equal(held(), 2 * BYTES);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 5), 0);
    assert_int_equal(held(), 0);
}

/* A handle that is asked for by an address holds what is mapped there, after the mapping too. */
static void what_is_mapped_is_held_by_a_handle_of_its_address(void **state)
{
    (void)state;
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 1, 0, BYTES);
    sg_outside_mapped(0x1000, BYTES, 1);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), 0);
    sg_outside_retained(1, 0x1000);
    sg_outside_retained(1, 0x1000);
    sg_outside_retained(2, 0x2000); /* nothing of ours is known there */
    assert_int_equal(sg_outside_unmapped(0x1000, BYTES), 0);
    assert_int_equal(held(), BYTES);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), 0);
    assert_int_equal(held(), BYTES);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), 0);
    assert_int_equal(held(), 0);
}

static uint64_t physical(const struct sg_outside *outside)
{
    return outside->bytes[SEGALLOC_OUTSIDE_PHYSICAL];
}

/* Memory that comes and goes between two notes is in the next one, once; and nothing of what the note before had. */
static void what_is_gone_is_noted_once(void **state)
{
    (void)state;
    struct sg_outside now = {0}, most = {0};
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 1, 1, BYTES);
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 2, 1, 4 * BYTES);
    sg_outside_taken(SEGALLOC_OUTSIDE_ARRAYS, 3, 1, BYTES);
    assert_int_equal(sg_outside_devices(), 2);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 2), 1);
    sg_outside_taken(SEGALLOC_OUTSIDE_PHYSICAL, 4, 1, 2 * BYTES); /* less than there was */
    sg_held_outside(1, &now, NULL);
    sg_held_outside(1, &now, &most);
    assert_int_equal(physical(&now), 3 * BYTES);
    assert_int_equal(physical(&most), 5 * BYTES);
    assert_int_equal(most.bytes[SEGALLOC_OUTSIDE_ARRAYS], BYTES);
    sg_held_outside(1, &now, &most);
    assert_int_equal(sg_outside_sum(&most), 0);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 1), 1);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_ARRAYS, 3), 1);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_PHYSICAL, 4), 1);
    sg_held_outside(1, &now, &most);
    assert_int_equal(sg_outside_sum(&now), 0);
    assert_int_equal(sg_outside_sum(&most), 0);
}

/* Pages of managed memory can be on any device, so that all of it is known of each. */
static void managed_memory_is_of_every_device(void **state)
{
    (void)state;
    struct sg_outside now = {0}, most;
    sg_outside_taken(SEGALLOC_OUTSIDE_MANAGED, 5, 0, BYTES);
    sg_held_outside(1, &now, &most);
    assert_int_equal(now.bytes[SEGALLOC_OUTSIDE_MANAGED], BYTES);
    assert_int_equal(sg_outside_given(SEGALLOC_OUTSIDE_MANAGED, 5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_lock_is_held, start),
        cmocka_unit_test_setup(the_configuration_is_read, start),
        cmocka_unit_test_setup(memory_elsewhere_is_noted, start),
        cmocka_unit_test_setup(what_a_file_leads_to_is_held_by_its_imports, start),
        cmocka_unit_test_setup(what_is_mapped_is_held_by_a_handle_of_its_address, start),
        cmocka_unit_test_setup(what_is_gone_is_noted_once, start),
        cmocka_unit_test_setup(managed_memory_is_of_every_device, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
