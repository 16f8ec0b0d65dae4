/* Sites and phases: each stack and each phase is a number, which a trace defines once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backward.h"
#include "life.h"
#include "native.h"
#include "phases.h"
#include "python.h"
#include "recorder.h"
#include "segalloc/segalloc.h"
#include "sites.h"

int InitializeInjectionNvtx2(const void *(*table)(uint32_t id));

__thread struct sg_thread sg_self;
__thread struct sg_thread *sg_self_found;

struct sg_thread *sg_thread_find(void)
{
    return sg_self_found = &sg_self;
}

void sg_guard(enum sg_guard guard)
{
    assert_int_equal(guard, SG_GUARD_SITES);
}

void sg_unguard(enum sg_guard guard)
{
    (void)guard;
}

static struct sg_conf conf;

const struct sg_conf *sg_life_conf(void)
{
    return &conf;
}

/* Stacks are of lines of one file, each its own function's; of code, of addresses. */
static struct {
    unsigned line[4], lines;
    uint64_t address[4];
    unsigned addresses;
    int described;
} program;

unsigned sg_python_frames(struct sg_frame *ret, unsigned most)
{
    for (unsigned i = 0; i < program.lines && i < most; i++)
        ret[i] = (struct sg_frame){0x1000 + program.line[i], program.line[i]};
    return program.lines;
}

bool sg_python_describe(const struct sg_frame *frame, char *file, char *function, size_t room, uint32_t *ret_line)
{
    program.described++;
    snprintf(file, room, frame->at < 100 ? "/home/me/train.py" : "/lib/python3.12/site-packages/torch/nn/functional.py");
    snprintf(function, room, "function_%u", (unsigned)frame->at);
    *ret_line = (uint32_t)frame->at;
    return true;
}

unsigned sg_native_frames(struct sg_native *native, uintptr_t *top, uint64_t *ret, unsigned most)
{
    (void)native;
    (void)top;
    assert_true(program.addresses <= most);
    memcpy(ret, program.address, program.addresses * sizeof *ret);
    return program.addresses;
}

bool sg_native_describe(uint64_t address, char *module, char *function, size_t room, uint32_t *ret_offset)
{
    snprintf(module, room, "/home/me/solver");
    snprintf(function, room, "solve");
    *ret_offset = (uint32_t)address;
    return address != 1;
}

static struct sg_backward backward; /* of type 0: none */

void sg_backward_look(void)
{
}

void sg_backward_forward(struct sg_thread *self, uint32_t site)
{
    (void)self;
    (void)site;
}

bool sg_backward_now(struct sg_backward *ret)
{
    *ret = backward;
    return backward.type != 0;
}

bool sg_backward_name(uint64_t type, char *ret, size_t room)
{
    return snprintf(ret, room, "Class%u", (unsigned)type) > 0;
}

static struct {
    struct segalloc_trace_record record[512];
    unsigned count;
    bool refuses;
} trace;

bool sg_recorder_define(struct segalloc_trace_record *define, uint32_t count)
{
    if (trace.refuses)
        return false;
    assert_true(trace.count + count <= sizeof trace.record / sizeof *trace.record);
    memcpy(trace.record + trace.count, define, count * sizeof *define);
    trace.count += count;
    return true;
}

static unsigned count(enum segalloc_record_kind kind, uint32_t number)
{
    unsigned found = 0;
    for (unsigned i = 0; i < trace.count; i++)
        found += trace.record[i].kind == kind && (!number || trace.record[i].stream == number);
    return found;
}

static uint32_t at(unsigned a, unsigned b)
{
    program.line[0] = a;
    program.line[1] = b;
    program.lines = 2;
    sg_sites_note(sg_this_thread());
    return sg_this_thread()->site;
}

static int on(void **state)
{
    (void)state;
    conf.sites = true;
    trace.count = 0;
    trace.refuses = false;
    program.lines = program.addresses = 0;
    return sg_sites_open(&conf) ? 0 : -1;
}

static void each_stack_is_a_number(void **state)
{
    (void)state;
    uint32_t one = at(10, 20);
    assert_true(one && trace.count);
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
    uint32_t shown = sg_this_thread()->shown;
    assert_true(sg_sites_tell(shown, text, sizeof text));
    assert_string_equal(text, "train.py:30 in function_30");
    at(301, 30);
    assert_int_equal(sg_this_thread()->shown, shown); /* by another way through a library */
    assert_true(sg_this_thread()->site != shown);
    assert_false(sg_sites_tell(0, text, sizeof text) || sg_sites_tell(1u << 31, text, sizeof text));
}

static void what_was_not_taken_is_written_again(void **state)
{
    (void)state;
    trace.refuses = true;
    uint32_t site = at(40, 41);
    assert_true(site && !trace.count);
    trace.refuses = false;
    assert_int_equal(at(40, 41), site);
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, site), 2);
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
    assert_true(sg_sites_tell(sg_this_thread()->shown, text, sizeof text));
    assert_string_equal(text, "solver in solve (+0x1234)");
    assert_int_equal(trace.record[trace.count - 1].flags, SEGALLOC_FLAG_NATIVE | SEGALLOC_FLAG_LAST);
    program.addresses = 0;
    sg_sites_note(sg_this_thread());
    assert_int_equal(sg_this_thread()->site, 0);
    assert_int_equal(sg_this_thread()->shown, 0);
}

static void a_backward_pass_is_told_by_what_ran_forward(void **state)
{
    (void)state;
    char text[64];
    uint32_t forward = at(50, 51);
    program.lines = 0;
    backward = (struct sg_backward){.type = 7, .forward = forward};
    sg_sites_note(sg_this_thread());
    assert_true(sg_this_thread()->site != forward && sg_sites_tell(sg_this_thread()->shown, text, sizeof text));
    assert_string_equal(text, "backward of train.py:50 in function_50");
    assert_int_equal(count(SEGALLOC_RECORD_DEFINE_SITE, sg_this_thread()->site), 2);
    backward.forward = 0;
    sg_sites_note(sg_this_thread());
    assert_true(sg_sites_tell(sg_this_thread()->shown, text, sizeof text));
    assert_string_equal(text, "backward, Class7");
    backward.type = 0;
}

/* The name of the phase that an allocation of this thread is in, with those around it. */
static const char *phase(void)
{
    static char text[256];
    sg_sites_note(sg_this_thread());
    *text = '\0';
    for (uint32_t number = sg_this_thread()->phase; number;) {
        const struct segalloc_trace_record *define = NULL;
        for (unsigned i = 0; i < trace.count; i++)
            if (trace.record[i].kind == SEGALLOC_RECORD_DEFINE_PHASE && trace.record[i].stream == number)
                define = &trace.record[i];
        assert_non_null(define);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s<", sg_sites_text((uint32_t)define->size));
        number = (uint32_t)define->id;
    }
    return text;
}

static void phases_nest(void **state)
{
    (void)state;
    assert_string_equal(phase(), "");
    segalloc_mark("step 1");
    assert_string_equal(phase(), "step 1<");
    segalloc_phase_push("forward");
    segalloc_phase_push("attention");
    assert_string_equal(phase(), "attention<forward<step 1<");
    unsigned written = trace.count;
    phase();
    assert_int_equal(trace.count, written);
    segalloc_phase_pop();
    segalloc_phase_push(NULL);
    assert_string_equal(phase(), "forward<step 1<");
    segalloc_phase_pop();
    segalloc_phase_pop();
    segalloc_phase_pop(); /* one too many */
    segalloc_mark(NULL);
    assert_string_equal(phase(), "");
    for (int i = 0; i < 100; i++)
        segalloc_phase_push("deep");
    for (int i = 0; i < 99; i++)
        segalloc_phase_pop();
    assert_string_equal(phase(), "deep<");
    segalloc_phase_pop();
}

/* NVTX as a program has it: pointers that are NULL until a tool sets them. */
typedef void function(void);
static function *core[16], *core2[16];

static int functions_of(int module, function ****ret_table, unsigned *ret_count)
{
    static function **tables[2][17];
    for (int i = 0; i < 16; i++) {
        tables[0][i] = &core[i];
        tables[1][i] = &core2[i];
    }
    assert_true(module == 1 || module == 5);
    *ret_table = tables[module == 5];
    *ret_count = 16;
    return 1;
}

static const void *nvtx_table(uint32_t id)
{
    static const struct {
        size_t bytes;
        int (*functions_of)(int module, function ****ret_table, unsigned *ret_count);
    } callbacks = {sizeof callbacks, functions_of};
    return id == 1 ? &callbacks : NULL;
}

static void ranges_of_nvtx_are_phases(void **state)
{
    (void)state;
    int (*push)(const char *), (*pop)(void), (*domain_push)(void *, const void *), (*domain_pop)(void *);
    const void *(*intern)(void *, const char *);
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    memcpy(&push, &core[9], sizeof push);
    memcpy(&pop, &core[11], sizeof pop);
    memcpy(&domain_push, &core2[4], sizeof domain_push);
    memcpy(&domain_pop, &core2[5], sizeof domain_pop);
    memcpy(&intern, &core2[10], sizeof intern);
    assert_int_equal(push("eval"), 0);
    struct {
        uint16_t version, size;
        uint32_t before[5];
        uint64_t payload;
        int32_t type;
        const void *message;
    } event = {.version = 3, .type = 3, .message = intern(NULL, "batch")};
    assert_int_equal(domain_push(NULL, &event), 1);
    assert_string_equal(phase(), "batch<eval<");
    assert_int_equal(domain_pop(NULL), 1);
    assert_int_equal(pop(), 0);
    assert_string_equal(phase(), "");
}

static void off_is_nothing(void **state)
{
    (void)state;
    conf.sites = false;
    assert_false(sg_sites_open(&conf));
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 0);
    segalloc_phase_push("x");
    segalloc_phase_pop();
    segalloc_mark("y");
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
        cmocka_unit_test_setup(a_backward_pass_is_told_by_what_ran_forward, on),
        cmocka_unit_test_setup(phases_nest, on),
        cmocka_unit_test_setup(ranges_of_nvtx_are_phases, on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
