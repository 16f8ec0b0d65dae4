/* PyTorch's allocator is recognised by its release, and left alone where it is not. */
#include "torch_allocator_fakes.h"

static void **other[] = {own + BEFORE};

static int take(void)
{
    make_tables();
    bool taken = sg_torch_overrides_take();
    void **now = object[0];
    if (!taken)
        return now == own + BEFORE ? lines * SAYS : -1; /* nothing has changed */
    if (now == own + BEFORE || now[SHARE_AT] == &functions[SHARE_AT] || now[made.count + MORE - 1] == NULL)
        return -1;
    return TAKEN + COUNTS * (now[STATISTICS_AT] != &functions[STATISTICS_AT]) + SAYS * lines;
}

static void expect(const struct made *what, int result)
{
    int status;
    made = *what;
    write_version();
    pid_t child = fork();
    if (child == 0)
        _exit(take());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != result)
        fail_msg("%d functions of PyTorch %s: %d, not %d", what->count,
            what->version ? what->version : "without a version", WIFEXITED(status) ? WEXITSTATUS(status) : -1, result);
}

/* Releases whose statistics were looked at, and others, however many functions they have. */
static void statistics_are_taken_of_known_releases(void **state)
{
    static const char *const known[] = {"2.5.1", "2.6.0+cu124", "2.8.0", "2.9.1", "2.10.0+cu130", "2.11.0", "2.12.1",
        "2.13.0", "2.14.1+cu130", "2.15.0"},
        *const unknown[] = {"2.4.1", "2.16.0", "3.0.0", "2.12.0a0+git1", "2.11.0.dev1", "2.11", "2", "", NULL};
    static const int counts[] = {46, 50, 51, 57};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            expect(&(struct made){counts[c], -1, library, known[i]}, TAKEN + COUNTS);
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
            expect(&(struct made){counts[c], -1, library, unknown[i]}, TAKEN + SAYS);
    }
}

static void what_lacks_a_name_is_left_alone(void **state)
{
    (void)state;
    for (int i = 0; i < NAMED; i++)
        expect(&(struct made){50, named[i].slot, library, "2.11.0"},
            named[i].slot == 30 || named[i].slot == 34 || named[i].slot == RECORD_AT ? TAKEN + COUNTS : 0);
    expect(&(struct made){40, -1, library, "2.11.0"}, 0); /* the last is beyond its end */
    expect(&(struct made){121, -1, library, "2.11.0"}, 0);
    expect(&(struct made){-1, -1, library, "2.11.0"}, 0);
    expect(&(struct made){50, -1, "/somewhere/libother.so", "2.11.0"}, 0);
    expect(&(struct made){50, -1, NULL, "2.11.0"}, 0);
}

/* The first tensor is made without the cache already. */
static int ask_early(void)
{
    make_allocator();
    sg_torch_overrides_watch();
    bool watched = object[0] != own + BEFORE && object[0][SHARE_AT] == &functions[SHARE_AT] && on && !questions;
    sg_torch_overrides_watch();
    bool off = !reads_switch() && questions == 1 && object[0][SHARE_AT] != &functions[SHARE_AT];
    bool stays = object[0][ENABLED_AT] != own[BEFORE + ENABLED_AT] && !reads_switch() && !sg_self.torch_cached;
    pool_allocates = true; /* the next tensor alone */
    bool routed = reads_switch() && sg_self.torch_cached && questions == 1;
    pool_allocates = false;
    return watched && off && stays && routed && !reads_switch() && !sg_self.torch_cached;
}

/* As with the mode beneath, or where a variable of the environment says what is to be. */
static int ask_first(void)
{
    make_allocator();
    sg_torch_overrides_watch();
    settled = true;
    return reads_switch() && questions == 0 && object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] &&
           object[0][SHARE_AT] == own[BEFORE + SHARE_AT];
}

/* Another allocator is in force by the time of the question. */
static int replaced_meanwhile(void)
{
    make_allocator();
    sg_torch_overrides_watch();
    in_force = other;
    return reads_switch() && questions == 1 && object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] &&
           object[0][SHARE_AT] == own[BEFORE + SHARE_AT];
}

static void caching_is_settled_when_the_switch_is_read(void **state)
{
    (void)state;
    expect_in_child(ask_early, 1);
    expect_in_child(ask_first, 1);
    expect_in_child(replaced_meanwhile, 1);
}

/* The place of `enable` has a name there, as before PyTorch 2.9. */
static int watch_without_switch(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    sg_torch_overrides_watch();
    return object[0] == own + BEFORE;
}

/* pytorch:direct has lines for pools and history. Nothing else changes. */
static int watch_for_lines(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    conf.pytorch = SG_PYTORCH_DIRECT;
    sg_torch_overrides_watch();
    return object[0] != own + BEFORE && object[0][END_AT] != own[BEFORE + END_AT] &&
           object[0][HISTORY_AT] != own[BEFORE + HISTORY_AT] && object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] &&
           object[0][SHARE_AT] == own[BEFORE + SHARE_AT] && !sg_torch_overrides_answer();
}

static void what_has_no_switch_is_not_watched(void **state)
{
    (void)state;
    expect_in_child(watch_without_switch, 1);
    expect_in_child(watch_for_lines, 1);
}

/* A library without a folder, a path beyond what is read, a version that is too long. */
static void versions_that_cannot_be_read(void **state)
{
    static char longest[2 * SG_PATH_BYTES];
    (void)state;
    expect(&(struct made){50, -1, "libc10_cuda.so", "2.11.0"}, TAKEN + SAYS);
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '/';
    strcpy(longest + sizeof longest - sizeof "/libc10_cuda.so", "/libc10_cuda.so");
    expect(&(struct made){50, -1, longest, "2.11.0"}, TAKEN + SAYS);
    expect(&(struct made){50, -1, library,
               "2.11.0+a.very.long.name.of.a.build.that.somebody.made.for.some.machine.of.theirs"},
        TAKEN + SAYS);
}

/* What PyTorch says of memory, by its release: not where another allocator is in force, nor where there is no switch. */
static int answer(void)
{
    make_allocator();
    bool watched = sg_torch_overrides_answer() && object[0] != own + BEFORE;
    in_force = other;
    return watched && !sg_torch_overrides_answer();
}

static int answer_of_old_release(void)
{
    make_allocator();
    made.version = "2.8.0";
    write_version();
    return !sg_torch_overrides_answer();
}

static int answer_without_switch(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    return !sg_torch_overrides_answer();
}

static void answers_are_of_known_releases(void **state)
{
    (void)state;
    expect_in_child(answer, 1);
    expect_in_child(answer_of_old_release, 1);
    expect_in_child(answer_without_switch, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_taken_of_known_releases),
        cmocka_unit_test(what_lacks_a_name_is_left_alone),
        cmocka_unit_test(caching_is_settled_when_the_switch_is_read),
        cmocka_unit_test(what_has_no_switch_is_not_watched),
        cmocka_unit_test(answers_are_of_known_releases),
        cmocka_unit_test(versions_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, install, uninstall);
}
