/* The probe where the driver refuses a call or lacks one: it leaves nothing behind. */
#include "alias_probe_fakes.h"

/* Each call of the driver in turn: what was not tested is off, and nothing is left behind. */
static void each_refusal(void **state)
{
    (void)state;
    settle(true);
    int calls = fake.calls;
    assert_true(calls > 4 * ROUNDS);
    for (fake.refuse = 1; fake.refuse <= calls; fake.refuse++) {
        const char *text = settle(false);
        if (strcmp(text, "") != 0)
            assert_string_equal(text, untested);
    }
    assert_int_equal(said, 0);
}

static void what_cannot_be_tested(void **state)
{
    (void)state;
    fake.no_context = true;
    assert_string_equal(settle(false), untested);
    fake.no_context = false;
    fake.ending = true;
    assert_string_equal(settle(false), untested);
    fake.ending = false;
    fake.no_memory = true;
    assert_string_equal(settle(false), untested);
    fake.no_memory = false;
    fake.granule = 64 << 10; /* smaller than what is tested */
    assert_string_equal(settle(false), untested);
    fake.granule = GRANULE;
    fake.helper = NO_THREAD;
    assert_string_equal(settle(false), untested);
    fake.helper = RUNS;
    assert_string_equal(settle(true), "on");
}

/* A driver that lacks one of the calls is not asked for the others. */
static void each_call_is_needed(void **state)
{
    (void)state;
    void **calls[] = {(void **)&driver.stream_create, (void **)&driver.stream_destroy,
        (void **)&driver.stream_synchronize, (void **)&driver.set_async, (void **)&driver.set_rows_async,
        (void **)&driver.copy_async, (void **)&driver.copy_to_host_async};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *kept = *calls[i];
        *calls[i] = NULL;
        assert_string_equal(settle(false), untested);
        *calls[i] = kept;
    }
    driver.create = NULL; /* without pages there is nothing to say */
    assert_string_equal(settle(false), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_refusal, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_tested, begin, end),
        cmocka_unit_test_setup_teardown(each_call_is_needed, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
