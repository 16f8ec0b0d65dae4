/* The probe of second addresses: they are used only on devices where it found them coherent. */
#include "alias_probe_fakes.h"

static void in_a_process(void (*run)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run();
        EXPECT(is_nothing_held());
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_page_that_is_coherent(void **state)
{
    (void)state;
    assert_string_equal(settle(true), "on");
    fake.helper = RUNS_LATER;
    assert_string_equal(settle(true), "on");
    assert_in_range(rests, 100, 110); /* looked at again and again, and no longer than needed */
    assert_int_equal(said, 0);
}

/* By what the reading of each kind sees. */
static void a_page_that_is_not(void **state)
{
    static const enum fault faults[] = {STALE, WORDS_STALE, ROWS_MIXED, ROWS_STALE, SECOND_READ};
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        fake.fault = faults[i];
        assert_string_equal(settle(false), "off: two addresses of a page are not coherent");
        assert_int_equal(said, 1);
    }
}

static void a_driver_that_does_nothing_was_not_tested(void **state)
{
    (void)state;
    fake.fault = DEAD;
    assert_string_equal(settle(false), untested);
    assert_int_equal(said, 0);
}

/* A process that wants no second address has nothing of the test: the first allocation asks for an attribute. */
static void use_without_want(void)
{
    sg_alias_probe_first(&conf, &driver);
    EXPECT(fake.calls == 2 && !fake.rests);
    EXPECT(!sg_alias_probe_allows(DEVICE, false) && fake.calls == 2 && !fake.rests);
    EXPECT(strncmp(sg_alias_probe_text(), "not tried", strlen("not tried")) == 0);
}

static void a_test_that_is_not_wanted_is_not_made(void **state)
{
    (void)state;
    in_a_process(use_without_want);
}

/* The device is busy: the growth waits for 50 ms, and none after it. What is found late counts from then on. */
static void use_busy_device(void)
{
    enum { GROWTH_RESTS = 250 };
    fake.helper = NEVER_RUNS;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_gave_back(DEVICE)); /* no test is under way */
    EXPECT(!sg_alias_probe_allows(DEVICE, true) && fake.rests == GROWTH_RESTS);
    EXPECT(!sg_alias_probe_allows(DEVICE, true) && fake.rests == GROWTH_RESTS);
    EXPECT(strstr(sg_alias_probe_text(), "the device is busy"));
    EXPECT(!sg_alias_probe_gave_back(DEVICE) && fake.rests > GROWTH_RESTS); /* it still has its page */
    int before = fake.rests;
    EXPECT(before <= GROWTH_RESTS + 5000);
    fake.late(fake.later_user);
    EXPECT(sg_alias_probe_allows(DEVICE, true) && strcmp(sg_alias_probe_text(), "on") == 0 && fake.rests == before);
    EXPECT(!sg_alias_probe_gave_back(DEVICE));
}

/* The device has run out while the test has a page, which is given back meanwhile. */
static void use_full_device_meanwhile(void)
{
    fake.helper = NEVER_RUNS;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_allows(DEVICE, true));
    fake.rests = 0;
    fake.later = fake.late;
    EXPECT(sg_alias_probe_gave_back(DEVICE) && fake.rests == 100);
}

static void a_busy_device_holds_nobody_up(void **state)
{
    (void)state;
    in_a_process(use_busy_device);
    in_a_process(use_full_device_meanwhile);
}

/* Where there is no page for the test, it is made when one is wanted again. */
static void use_full_device(void)
{
    fake.is_full = true;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_allows(DEVICE, true) && !sg_alias_probe_allows(DEVICE, true));
    EXPECT(strcmp(sg_alias_probe_text(), "off: the device had no page to test two addresses with") == 0);
    fake.is_full = false;
    EXPECT(!sg_alias_probe_allows(DEVICE, false) && sg_alias_probe_allows(DEVICE, true));
    EXPECT(strcmp(sg_alias_probe_text(), "on") == 0 && fake.said == 0);
}

static void a_full_device_is_tried_again(void **state)
{
    (void)state;
    in_a_process(use_full_device);
}

/* Other devices are tried when they first want one, each once and each by itself. */
static void use_others(void)
{
    static const char *const texts[] = {"off on device 2: two addresses of a page are not coherent",
        "off on device 3: whether two addresses of a page are coherent could not be tested"};
    sg_alias_probe_first(&conf, &driver);
    EXPECT(sg_alias_probe_allows(DEVICE, true));
    int calls = fake.calls;
    EXPECT(sg_alias_probe_allows(DEVICE, true) && fake.calls == calls); /* it was tried */
    fake.device = 0;
    EXPECT(sg_alias_probe_allows(0, true) && fake.calls > calls && fake.said == 0);
    EXPECT(strcmp(sg_alias_probe_text(), "on") == 0);
    fake.device = 2;
    fake.fault = STALE;
    EXPECT(!sg_alias_probe_allows(2, true) && fake.said == 1 && strcmp(sg_alias_probe_text(), texts[0]) == 0);
    fake.fault = NONE;
    calls = fake.calls;
    EXPECT(!sg_alias_probe_allows(2, true) && fake.calls == calls);
    fake.device = 3;
    fake.no_memory = true;
    EXPECT(!sg_alias_probe_allows(3, true) && fake.said == 1 && strcmp(sg_alias_probe_text(), texts[1]) == 0);
    EXPECT(sg_alias_probe_allows(DEVICE, true));
}

/* The thread's context is of another device by now. */
static void use_one_that_is_not_current(void)
{
    sg_alias_probe_first(&conf, &driver);
    fake.device = 2;
    EXPECT(!sg_alias_probe_allows(3, true) && !sg_alias_probe_allows(2, false) && fake.said == 0);
    EXPECT(strcmp(sg_alias_probe_text(),
               "off on device 3: whether two addresses of a page are coherent could not be tested") == 0);
}

static void each_device_is_tried(void **state)
{
    (void)state;
    in_a_process(use_others);
    in_a_process(use_one_that_is_not_current);
}

static void nothing_is_said_of_what_was_not_used(void)
{
    EXPECT(!sg_alias_probe_text());
    fake.device = -1;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_text());
    fake.device = SG_DEVICES_MAX;
    sg_alias_probe_first(&conf, &driver);
    EXPECT(!sg_alias_probe_text());
}

static void a_device_that_cannot_be(void **state)
{
    (void)state;
    in_a_process(nothing_is_said_of_what_was_not_used);
}

static void say_what_is_chosen(void)
{
    sg_alias_probe_first(&conf, &driver);
    EXPECT(fake.calls <= 2);
    const char *text = sg_alias_probe_text();
    if (conf.expandable_segments && conf.ipc != SG_IPC_ALWAYS && fake.vmm)
        EXPECT(strcmp(text, conf.alias == SG_ALIAS_ON ? "on, by the configuration and not by a test"
                                                      : "off, by the configuration") == 0);
    else
        EXPECT(!text);
}

static void what_the_configuration_says(void **state)
{
    (void)state;
    conf.alias = SG_ALIAS_ON;
    in_a_process(say_what_is_chosen);
    conf.alias = SG_ALIAS_OFF;
    in_a_process(say_what_is_chosen);
    fake.vmm = 0;
    in_a_process(say_what_is_chosen);
    fake.vmm = 1;
    conf.ipc = SG_IPC_ALWAYS;
    in_a_process(say_what_is_chosen);
    conf.ipc = SG_IPC_AUTO;
    conf.expandable_segments = false;
    in_a_process(say_what_is_chosen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_page_that_is_coherent, begin, end),
        cmocka_unit_test_setup_teardown(a_page_that_is_not, begin, end),
        cmocka_unit_test_setup_teardown(a_driver_that_does_nothing_was_not_tested, begin, end),
        cmocka_unit_test_setup_teardown(a_test_that_is_not_wanted_is_not_made, begin, end),
        cmocka_unit_test_setup_teardown(a_busy_device_holds_nobody_up, begin, end),
        cmocka_unit_test_setup_teardown(a_full_device_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(each_device_is_tried, begin, end),
        cmocka_unit_test_setup_teardown(a_device_that_cannot_be, begin, end),
        cmocka_unit_test_setup_teardown(what_the_configuration_says, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
