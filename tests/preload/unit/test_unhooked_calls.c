/* The stubs that are handed out for calls of the driver that nothing here knows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "balance.h"
#include "process/process.h"
#include "hooks/pin_hooks.h"
#include "track/streams.h"
#include "hooks/unhooked_calls.h"

static char untracked_by[64];

void sg_streams_untrack(const char *by)
{
    double noise[8];
    for (int i = 0; i < 8; i++)
        noise[i] = i * 1.5 + (double)by[0]; /* registers that hold parameters are used here */
    snprintf(untracked_by, sizeof untracked_by, "%s%.0s", by, noise[7] > 0 ? "" : "?");
}

static char pinned_by[64];
static int pins;

void sg_pin_all(const char *name)
{
    pins++;
    snprintf(pinned_by, sizeof pinned_by, "%s", name);
}

static const void *there = &there;

static uint64_t whole(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h,
    uint64_t i, uint64_t j, double k, double l, double m, double n, float o, float p, float q, double r)
{
    assert_string_not_equal(untracked_by, ""); /* before the driver is called */
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j +
        (uint64_t)(11 * k + 12 * l + 13 * m + 14 * n + 15 * (double)o + 16 * (double)p + 17 * (double)q + 18 * r);
}
typedef uint64_t whole_fn(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
    uint64_t, double, double, double, double, float, float, float, double);

static void *address_of(whole_fn *function)
{
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

static void parameters_and_results_go_through(void **state)
{
    (void)state;
    whole_fn *stub;
    void *address = sg_untracked_stub(SG_UNTRACKED_ORDER, "cuStreamOfTomorrow", address_of(whole));
    assert_ptr_not_equal(address, address_of(whole));
    assert_string_equal(untracked_by, ""); /* being asked for it is nothing */
    memcpy(&stub, &address, sizeof stub);
    uint64_t sum = stub(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18);
    assert_string_equal(untracked_by, "cuStreamOfTomorrow");
    uint64_t expected = 0;
    for (uint64_t i = 1; i <= 18; i++)
        expected += i * i;
    assert_int_equal(sum, expected);
}

static void a_function_has_one_stub(void **state)
{
    (void)state;
    void *first = sg_untracked_stub(SG_UNTRACKED_ORDER, "cuStreamOne", (void *)&there);
    assert_ptr_equal(sg_untracked_stub(SG_UNTRACKED_ORDER, "cuStreamOneAgain", (void *)&there), first);
    assert_ptr_not_equal(sg_untracked_stub(SG_UNTRACKED_ORDER, "cuStreamTwo", (char *)&there + 1), first);
}

static void where_there_are_too_many_order_ends_at_once(void **state)
{
    static char many[100];
    (void)state;
    untracked_by[0] = '\0';
    int stubs = 0;
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "cuLaunchNumber%d", i);
        stubs += sg_untracked_stub(SG_UNTRACKED_ORDER, name, &many[i]) != &many[i];
    }
    assert_in_range(stubs, 1, 48);
    assert_memory_equal(untracked_by, "cuLaunchNumber", 14);
}

static long bind(long a, long b)
{
    assert_int_equal(pins, 1); /* before the driver is called */
    return 10 * a + b;
}

/* Calls that may remember pages are not calls that order work, and have stubs where those have none left. */
static void pages_stay_where_they_are_from_the_call_on(void **state)
{
    static char many[100];
    long (*function)(long, long) = bind;
    void *address;
    (void)state;
    untracked_by[0] = '\0';
    memcpy(&address, &function, sizeof address);
    address = sg_untracked_stub(SG_UNTRACKED_PAGES, "cuMulticastBindTomorrow", address);
    assert_int_equal(pins, 0);
    memcpy(&function, &address, sizeof address);
    assert_int_equal(function(4, 2), 42);
    assert_string_equal(pinned_by, "cuMulticastBindTomorrow");
    assert_int_equal(pins, 1);
    int stubs = 1;
    for (int i = 0; i < 100; i++)
        stubs += sg_untracked_stub(SG_UNTRACKED_PAGES, "cuMulticastBindAgain", &many[i]) != &many[i];
    assert_int_equal(stubs, 16);
    assert_int_equal(pins, 1 + 100 - 15); /* those without count as called */
    assert_string_equal(untracked_by, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_and_results_go_through),
        cmocka_unit_test(a_function_has_one_stub),
        cmocka_unit_test(where_there_are_too_many_order_ends_at_once),
        cmocka_unit_test(pages_stay_where_they_are_from_the_call_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
