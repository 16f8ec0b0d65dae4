/* Call stacks and their numbers: each stack has one, and a trace defines it once. */
#include "sites_fakes.h"

static void each_stack_is_a_number(void **state)
{
    (void)state;
    uint32_t one = at(10, 20);
    assert_true(one && trace.count);
    assert_true(looks > 0); /* for PyTorch, whenever something new is met */
    unsigned written = trace.count;
    int described = program.described;
    assert_int_equal(at(10, 20), one);
    assert_true(trace.count == written && program.described == described); /* a stack that was met costs neither */
    uint32_t other = at(11, 20);
    assert_true(other && other != one);
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, one), 2);
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, other), 2);
    for (unsigned i = 0; i < trace.count; i++)
        if (trace.record[i].kind == SEGALLOC_RECORD_DEFINE_SITE && trace.record[i].flags & SEGALLOC_FLAG_FIRST)
            assert_true(trace.record[i].size == 10 || trace.record[i].size == 11);
}

static void the_users_own_line_is_shown(void **state)
{
    (void)state;
    char text[64];
    at(300, 30);
    uint32_t shown = sg_this_thread()->place.shown;
    assert_true(sg_sites_describe(shown, text, sizeof text));
    assert_string_equal(text, "train.py:30 in function_30");
    at(301, 30);
    assert_int_equal(sg_this_thread()->place.shown, shown); /* by another way through a library */
    assert_true(sg_this_thread()->place.site != shown);
    assert_false(sg_sites_describe(0, text, sizeof text) || sg_sites_describe(1u << 31, text, sizeof text));
}

static void what_was_not_taken_is_written_again(void **state)
{
    (void)state;
    trace.refuses = true;
    uint32_t site = at(40, 41);
    assert_true(site && !trace.count);
    trace.refuses = false;
    trace.refuses_kind = SEGALLOC_RECORD_DEFINE_SITE; /* its texts alone are taken */
    assert_int_equal(at(40, 41), site);
    assert_true(trace.count && !count(SEGALLOC_RECORD_DEFINE_SITE, 0));
    unsigned texts = trace.count, refused = trace.refused;
    assert_int_equal(at(40, 41), site);
    assert_true(trace.count == texts && trace.refused == refused + 1);
    trace.refuses_kind = SEGALLOC_RECORD_NONE;
    assert_int_equal(at(40, 41), site);
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, site), 2);
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_TEXT, 0), texts);
    trace.count = 0;
    sg_sites_forget(); /* a fork */
    assert_int_equal(at(40, 41), site);
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, site), 2);
    assert_true(count(SEGALLOC_RECORD_DEFINE_TEXT, 0) >= 3);
}

static void code_has_addresses(void **state)
{
    (void)state;
    char text[64];
    program.address[0] = 0x1234;
    program.address[1] = 1; /* in no module */
    program.addresses = 2;
    sg_sites_note(sg_this_thread());
    assert_true(sg_sites_describe(sg_this_thread()->place.shown, text, sizeof text));
    assert_string_equal(text, "solver in solve (+0x1234)");
    assert_int_equal(trace.record[trace.count - 1].flags, SEGALLOC_FLAG_NATIVE | SEGALLOC_FLAG_LAST);
    program.addresses = 0;
    sg_sites_note(sg_this_thread());
    assert_int_equal(sg_this_thread()->place.site, 0);
    assert_int_equal(sg_this_thread()->place.shown, 0);
}

/* Names of C++ are as their author writes them, where the program has its runtime. */
static void names_are_plain(void **state)
{
    (void)state;
    char text[64];
    program.address[0] = 0x2222;
    program.addresses = 1;
    sg_sites_note(sg_this_thread());
    assert_true(sg_sites_describe(sg_this_thread()->place.shown, text, sizeof text));
    assert_string_equal(text, "solver in _ZN3net4stepIiEEvRKT_ (+0x2222)");
    cxx.runtime = true;
    assert_true(sg_sites_describe(sg_this_thread()->place.shown, text, sizeof text));
    assert_string_equal(text, "solver in net::step<int> (+0x2222)");
    assert_int_equal(cxx.open, 0);
    program.addresses = 0;
}

static void a_backward_pass_is_told_by_what_ran_forward(void **state)
{
    (void)state;
    char text[64];
    uint32_t forward = at(50, 51);
    program.lines = 0;
    backward = (struct sg_backward){.type = 7, .forward = forward};
    sg_sites_note(sg_this_thread());
    assert_true(
        sg_this_thread()->place.site != forward && sg_sites_describe(sg_this_thread()->place.shown, text, sizeof text));
    assert_string_equal(text, "backward of train.py:50 in function_50");
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, sg_this_thread()->place.site), 2);
    backward.forward = 0;
    sg_sites_note(sg_this_thread());
    assert_true(sg_sites_describe(sg_this_thread()->place.shown, text, sizeof text));
    assert_string_equal(text, "backward, Class7");
    char cut[8] = "???????";
    assert_true(sg_sites_describe(sg_this_thread()->place.shown, cut, 5));
    assert_string_equal(cut, "back");
    assert_string_equal(cut + 5, "??");
    backward.forward = forward;
    sg_sites_note(sg_this_thread());
    for (size_t room = 1; room < 8; room++) {
        memset(cut, '?', sizeof cut);
        assert_true(sg_sites_describe(sg_this_thread()->place.shown, cut, room));
        assert_true(strlen(cut) == room - 1 && (room == 7 || cut[room] == '?'));
    }
    backward = (struct sg_backward){.type = 8}; /* of no known name */
    sg_sites_note(sg_this_thread());
    assert_true(sg_sites_describe(sg_this_thread()->place.shown, text, sizeof text));
    assert_string_equal(text, "backward, of an unknown kind");
    backward.type = 0;
}

/* What there is room for; each in a process of its own, since it stays. */
static void apart(void (*run)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void many_short_texts(void)
{
    char text[32];
    uint32_t last = 0;
    for (int i = 0; i < 40000; i++) {
        snprintf(text, sizeof text, "%d", i);
        uint32_t number = sg_sites_intern(text);
        assert_true(!number || !last || number == last + 1);
        last = number ? number : last;
        assert_true(!number || strcmp(sg_sites_text(number), text) == 0);
    }
    assert_int_equal(last, (1 << 15) - 1);                             /* a reader takes no more */
    assert_int_equal(sg_sites_intern("7") + 4, sg_sites_intern("11")); /* those that are there are found */
    assert_int_equal(sg_sites_intern(""), 0);
}

static void many_long_texts(void)
{
    char text[600];
    size_t bytes = 0;
    for (int i = 0; i < 20000; i++) {
        memset(text, 'x', sizeof text);
        snprintf(text + 490, 20, "%08d", i); /* longer ones are cut to 511 bytes */
        text[498] = 'y';
        text[599] = '\0';
        uint32_t number = sg_sites_intern(text);
        if (!number)
            continue;
        assert_int_equal(strlen(sg_sites_text(number)), 511);
        assert_memory_equal(sg_sites_text(number), text, 511);
        bytes += 512;
    }
    assert_in_range(bytes, (4 << 20) - 8192, 4 << 20);
    assert_true(sg_sites_intern("x") != 0 || bytes + 8192 > 4 << 20); /* a short one may still fit */
}

static void many_stacks(void)
{
    unsigned found = 0;
    trace.refuses = true;
    for (unsigned i = 1; i < 70000; i++)
        found += at(i, 30) != 0;
    assert_in_range(found, 65000, 65535);
    assert_int_equal(at(69999, 30), 0);
    assert_true(!sg_this_thread()->place.shown && at(69998 - 69000, 30) != 0);
}

static void many_phases(void)
{
    char name[32];
    unsigned none = 0, some = 0;
    trace.refuses = true;
    for (unsigned i = 0; i < 40000; i++) {
        snprintf(name, sizeof name, "step %u", i % 200);
        segalloc_mark(name);
        snprintf(name, sizeof name, "part %u", i / 200);
        segalloc_phase_push(name);
        sg_sites_note(sg_this_thread());
        *(sg_this_thread()->place.phase ? &some : &none) += 1;
        segalloc_phase_pop();
    }
    assert_true(some > 32000 && some < 1 << 15 && none > 0);
    segalloc_mark("step 1");
    segalloc_phase_push("part 1");
    sg_sites_note(sg_this_thread());
    assert_true(sg_this_thread()->place.phase != 0);
}

/* Lines meet in the table by chance, of Python and of code. */
static void many_lines(void)
{
    trace.refuses = true;
    for (unsigned i = 10000; i < 20000; i++) {
        program.line[0] = i;
        program.address[0] = i;
        program.lines = i % 2;
        program.addresses = 1 - i % 2;
        sg_sites_note(sg_this_thread());
        assert_true(sg_this_thread()->place.site && sg_this_thread()->place.shown == sg_this_thread()->place.site);
    }
}

/* What has no name of its own has no number. */
static void phases_beside_many_texts(void)
{
    char name[32];
    trace.refuses = true;
    for (int i = 0; i < 1 << 15; i++) {
        snprintf(name, sizeof name, "%d", i);
        sg_sites_intern(name);
    }
    segalloc_phase_push("7");
    sg_sites_note(sg_this_thread());
    uint32_t known = sg_this_thread()->place.phase;
    segalloc_phase_push("of no name that was met");
    sg_sites_note(sg_this_thread());
    assert_true(known && !sg_this_thread()->place.phase);
    segalloc_phase_pop();
    sg_sites_note(sg_this_thread());
    assert_int_equal(sg_this_thread()->place.phase, known);
}

/* Phases without one around them meet in the table too. */
static void many_phases_side_by_side(void)
{
    char name[32];
    static uint32_t number[30000];
    trace.refuses = true;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 30000; i++) {
            snprintf(name, sizeof name, "lap %u", (unsigned)i);
            segalloc_phase_push(name);
            sg_sites_note(sg_this_thread());
            if (!round)
                number[i] = sg_this_thread()->place.phase;
            assert_int_equal(sg_this_thread()->place.phase, number[i]);
            assert_true(i == 0 || number[i] == number[i - 1] + 1);
            segalloc_phase_pop();
        }
    }
}

static uint64_t mix(uint64_t sum)
{
    sum *= UINT64_C(0x9e3779b97f4a7c15);
    return sum ^ sum >> 32;
}

/* Stacks of other frames, or of another number of them, may have one hash. It is that of sites.c. */
static void stacks_of_one_hash(void)
{
    uint64_t last = mix(2 ^ 0x1000) ^ 1000;
    const struct sg_frame list[3][2] = {
        {{0x1000, 1000}},
        {{0x2000, mix(2 ^ 0x2000) ^ last}},
        {{0x3000, 1001}, {0x4000, mix(mix(mix(4 ^ 0x3000) ^ 1001) ^ 0x4000) ^ last}},
    };
    uint32_t number[3];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            memcpy(program.frame, list[i], sizeof list[i]);
            program.frames = i == 2 ? 2 : 1;
            trace.count = 0;
            sg_sites_note(sg_this_thread());
            if (round == 0)
                number[i] = sg_this_thread()->place.site;
            assert_int_equal(sg_this_thread()->place.site, number[i]);
        }
    }
    assert_true(number[0] && number[1] && number[2]);
    assert_true(number[0] != number[1] && number[1] != number[2] && number[0] != number[2]);
}

static void what_meets_in_a_table_is_told_apart(void **state)
{
    (void)state;
    apart(many_lines);
    apart(many_phases_side_by_side);
    apart(stacks_of_one_hash);
}

static void as_many_as_there_is_room_for(void **state)
{
    (void)state;
    apart(many_short_texts);
    apart(many_long_texts);
    apart(many_stacks);
    apart(many_phases);
    apart(phases_beside_many_texts);
}

static void off_is_nothing(void **state)
{
    (void)state;
    const void *(*intern)(void *, const char *);
    conf.sites = true;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    memcpy(&intern, &core2[10], sizeof intern);
    conf.sites = false;
    assert_null(intern(NULL, "registered")); /* nowhere to keep it */
    assert_false(sg_sites_open(&conf));
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 0);
    segalloc_phase_push("x");
    segalloc_phase_pop();
    segalloc_mark("y");
    char latest[8] = "text";
    sg_phases_latest(latest, sizeof latest);
    assert_string_equal(latest, "");
    assert_true(!trace.count && !sg_sites_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_is_nothing),
        cmocka_unit_test_setup(each_stack_is_a_number, on),
        cmocka_unit_test_setup(the_users_own_line_is_shown, on),
        cmocka_unit_test_setup(what_was_not_taken_is_written_again, on),
        cmocka_unit_test_setup(code_has_addresses, on),
        cmocka_unit_test_setup(names_are_plain, on),
        cmocka_unit_test_setup(a_backward_pass_is_told_by_what_ran_forward, on),
        cmocka_unit_test_setup(what_meets_in_a_table_is_told_apart, on),
        cmocka_unit_test_setup(as_many_as_there_is_room_for, on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
