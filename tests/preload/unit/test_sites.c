/* Sites and phases: each stack and each phase is a number, which a trace defines once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sites/backward.h"
#include "balance.h"
#include "process/process.h"
#include "process/symbols.h"
#include "site.h"
#include "sites/unwind.h"
#include "sites/phases.h"
#include "sites/python_stack.h"
#include "services/recorder.h"
#include "segalloc/segalloc.h"
#include "sites/note.h"
#include "sites/sites.h"

int InitializeInjectionNvtx2(const void *(*table)(uint32_t id));

__thread struct sg_thread sg_self;
__thread struct sg_thread *sg_self_found;

struct sg_thread *sg_thread_find(void)
{
    return sg_self_found = &sg_self;
}

static struct sg_conf conf;

const struct sg_conf *sg_process_conf(void)
{
    return &conf;
}

/* Stacks are of lines of one file, each its own function's; of code, of addresses; or of the frames that are named. */
static struct {
    struct sg_frame frame[2];
    unsigned frames;
    unsigned line[4], lines;
    uint64_t address[4];
    unsigned addresses;
    int described;
} program;

unsigned sg_python_frames(struct sg_frame *ret, unsigned most, unsigned outer)
{
    (void)outer;
    memcpy(ret, program.frame, program.frames * sizeof *ret);
    for (unsigned i = 0; i < program.lines && i < most; i++)
        ret[i] = (struct sg_frame){0x1000 + program.line[i], program.line[i]};
    return program.lines + program.frames;
}

bool sg_python_describe(const struct sg_frame *frame, char *file, char *function, size_t room, uint32_t *ret_line)
{
    program.described++;
    snprintf(file, room, frame->at < 100 ? "/home/me/train.py" : "/lib/python3.12/site-packages/torch/nn/functional.py");
    snprintf(function, room, "function_%u", (unsigned)frame->at);
    *ret_line = (uint32_t)frame->at;
    return true;
}

unsigned sg_unwind_frames(struct sg_unwinder *unwinder, struct sg_stack *stack, struct sg_frame *ret, unsigned most,
    unsigned outer)
{
    assert_true(outer < most);
    (void)unwinder;
    (void)stack;
    assert_true(program.addresses <= most);
    for (unsigned i = 0; i < program.addresses; i++)
        ret[i] = (struct sg_frame){.code = program.address[i]};
    return program.addresses;
}

bool sg_unwind_describe(uint64_t address, char *module, char *function, size_t room, uint32_t *ret_offset)
{
    snprintf(module, room, "/home/me/solver");
    snprintf(function, room, address == 0x2222 ? "_ZN3net4stepIiEEvRKT_" : "solve");
    *ret_offset = (uint32_t)address;
    return address != 1;
}

static struct {
    bool runtime; /* the program has one of C++ */
    int open;
} cxx;

void *sg_library_find(const char *prefix)
{
    assert_string_equal(prefix, "libstdc++.so");
    cxx.open += cxx.runtime;
    return cxx.runtime ? &cxx : NULL;
}

int sg_library_close(void *handle)
{
    assert_ptr_equal(handle, &cxx);
    cxx.open--;
    return 0;
}

static char *demangle(const char *name, char *room, size_t *bytes, int *ret_status)
{
    assert_null(room);
    assert_null(bytes);
    assert_string_equal(name, "_ZN3net4stepIiEEvRKT_");
    *ret_status = 0;
    return strdup("void net::step<int>(int const&)");
}

static void *look_up(void *handle, const char *name)
{
    sg_site_demangle_fn *function = demangle;
    void *symbol;
    assert_ptr_equal(handle, &cxx);
    assert_string_equal(name, "__cxa_demangle");
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return look_up;
}

static struct sg_backward backward; /* of type 0: none */

static unsigned looks;

void sg_backward_look(void)
{
    looks++;
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
    return type != 8 && snprintf(ret, room, "Class%u", (unsigned)type) > 0;
}

static struct {
    struct segalloc_trace_record record[512];
    unsigned count, refused;
    bool refuses;
    enum segalloc_record_kind refuses_kind; /* one of them; 0: none */
} trace;

bool sg_recorder_define(struct segalloc_trace_record *define, uint32_t count)
{
    trace.refused += trace.refuses || define->kind == trace.refuses_kind;
    if (trace.refuses || define->kind == trace.refuses_kind)
        return false;
    assert_true(trace.count + count <= sizeof trace.record / sizeof *trace.record);
    memcpy(trace.record + trace.count, define, count * sizeof *define);
    trace.count += count;
    return true;
}

static sg_recorder_phase_fn *follow;
void sg_recorder_follow_phase(sg_recorder_phase_fn *write)
{
    follow = write;
}

static unsigned count(enum segalloc_record_kind kind, uint32_t number)
{
    unsigned found = 0;
    for (unsigned i = 0; i < trace.count; i++)
        found += trace.record[i].kind == kind && (!number || trace.record[i].stream == number);
    return found;
}

/* A text as the trace has it, put together of its pieces. */
static const char *text_of(uint32_t number)
{
    static char text[1024];
    size_t used = 0;
    bool begun = false;
    for (unsigned i = 0; i < trace.count; i++) {
        const struct segalloc_trace_record *piece = &trace.record[i];
        if (piece->kind != SEGALLOC_RECORD_DEFINE_TEXT || piece->stream != number)
            continue;
        assert_int_equal((piece->flags & SEGALLOC_FLAG_FIRST) != 0, !begun);
        begun = true;
        memcpy(text + used, &piece->id, 8);
        memcpy(text + used + 8, &piece->size, 8);
        used += 16;
        if (piece->flags & SEGALLOC_FLAG_LAST) {
            assert_int_equal(strnlen(text + used - 16, 16) == 16 || !text[used - 1], true);
            text[used] = '\0';
            return text;
        }
    }
    fail_msg("text %u is not whole", number);
    return NULL;
}

static uint32_t at(unsigned a, unsigned b)
{
    program.line[0] = a;
    program.line[1] = b;
    program.lines = 2;
    sg_sites_note(sg_this_thread());
    return sg_this_thread()->place.site;
}

static int on(void **state)
{
    (void)state;
    conf.sites = true;
    trace.count = 0;
    trace.refuses = false;
    trace.refuses_kind = SEGALLOC_RECORD_NONE;
    program.lines = program.addresses = 0;
    return sg_sites_open(&conf) ? 0 : -1;
}

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

/* Frames say which texts are theirs, the innermost first. */
static void texts_are_whole(void **state)
{
    (void)state;
    uint32_t site = at(200, 21);
    unsigned frames = 0;
    for (unsigned i = 0; i < trace.count; i++) {
        const struct segalloc_trace_record *frame = &trace.record[i];
        if (frame->kind != SEGALLOC_RECORD_DEFINE_SITE || frame->stream != site)
            continue;
        assert_int_equal(frame->size, frames ? 21 : 200);
        assert_int_equal(frame->flags, frames ? SEGALLOC_FLAG_LAST : SEGALLOC_FLAG_FIRST);
        if (frames) { /* its file was written with an earlier frame, or is now */
            assert_string_equal(text_of((uint32_t)frame->id), "function_21");
        } else {
            assert_string_equal(text_of((uint32_t)(frame->id >> 32)),
                "/lib/python3.12/site-packages/torch/nn/functional.py");
            assert_string_equal(text_of((uint32_t)frame->id), "function_200");
        }
        frames++;
    }
    assert_int_equal(frames, 2);
    static const char *const lengths[] = {"a text of 15 by", "a text of 16 byt", "a text of 17 byte",
        "a text of 32 bytes, in two parts"};
    for (int i = 0; i < 4; i++) {
        uint32_t number = sg_sites_intern(lengths[i]);
        assert_true(sg_sites_write_text(number));
        assert_string_equal(text_of(number), lengths[i]);
        assert_int_equal(count(SEGALLOC_RECORD_DEFINE_TEXT, number), (strlen(lengths[i]) + 15) / 16);
        assert_string_equal(sg_sites_text(number), lengths[i]);
    }
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

/* The name of the phase that an allocation of this thread is in, with those around it. */
static const char *phase(void)
{
    static char text[256];
    sg_sites_note(sg_this_thread());
    *text = '\0';
    for (uint32_t number = sg_this_thread()->place.phase; number;) {
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
    char latest[64] = "text", cut[10];
    assert_string_equal(phase(), "");
    sg_phases_latest(latest, sizeof latest);
    assert_string_equal(latest, "");
    segalloc_mark("step 1");
    assert_string_equal(phase(), "step 1<");
    segalloc_phase_push("forward");
    segalloc_phase_push("attention");
    assert_string_equal(phase(), "attention<forward<step 1<");
    follow(latest, sizeof latest);
    assert_string_equal(latest, "step 1, forward, attention");
    sg_phases_latest(cut, sizeof cut);
    assert_string_equal(cut, "step 1, f");
    unsigned written = trace.count;
    phase();
    assert_int_equal(trace.count, written);
    segalloc_phase_pop();
    uint32_t forward = (phase(), sg_this_thread()->place.phase);
    for (int i = 0; i < 3; i++) { /* one that is entered again is the same */
        segalloc_phase_push("attention");
        assert_string_equal(phase(), "attention<forward<step 1<");
        segalloc_phase_pop();
    }
    assert_string_equal(phase(), "forward<step 1<");
    assert_int_equal(sg_this_thread()->place.phase, forward);
    assert_int_equal(trace.count, written);
    segalloc_phase_push("");
    assert_string_equal(phase(), "forward<step 1<");
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

/* Another thread's allocations are of the phase that was opened or closed last, where it has none itself. */
static void a_thread_without_phases(void **state)
{
    (void)state;
    segalloc_phase_push("decode");
    struct sg_thread kept = sg_self;
    sg_self = (struct sg_thread){0};
    assert_string_equal(phase(), "decode<");
    segalloc_phase_push("copy");
    assert_string_equal(phase(), "copy<");
    segalloc_phase_pop();
    assert_string_equal(phase(), "");
    sg_self = kept;
    assert_string_equal(phase(), "decode<");
    trace.count = 0;
    trace.refuses_kind = SEGALLOC_RECORD_DEFINE_PHASE;
    sg_sites_forget();
    sg_sites_note(sg_this_thread());
    trace.refuses_kind = SEGALLOC_RECORD_NONE;
    assert_string_equal(phase(), "decode<"); /* what was not taken is written again */
    segalloc_mark("");
    segalloc_phase_pop();
    assert_string_equal(phase(), "");
}

/* NVTX as a program has it: pointers that are NULL until a tool sets them. */
typedef void function(void);
static function *core[16], *core2[16];
static unsigned nvtx_functions = 16;
static int lacking = -1, core_lacking = -1; /* a place of core2, and of core */
static bool nvtx_has = true;

static int functions_of(int module, function ****ret_table, unsigned *ret_count)
{
    static function **tables[2][17];
    for (int i = 0; i < 16; i++) {
        tables[0][i] = &core[i];
        tables[1][i] = &core2[i];
    }
    assert_true(module == 1 || module == 5);
    if (core_lacking >= 0)
        tables[0][core_lacking] = NULL;
    if (lacking >= 0)
        tables[1][lacking] = NULL;
    *ret_table = tables[module == 5];
    *ret_count = nvtx_functions;
    return nvtx_has;
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

static const void *no_table(uint32_t id)
{
    static const size_t bytes = 8; /* of a version before these functions */
    return id == 9 ? NULL : &bytes;
}

static const void *none(uint32_t id)
{
    (void)id;
    return NULL;
}

static void an_older_nvtx_is_left_alone(void **state)
{
    (void)state;
    assert_int_equal(InitializeInjectionNvtx2(none), 0);
    assert_int_equal(InitializeInjectionNvtx2(no_table), 0);
    for (nvtx_functions = 0; nvtx_functions <= 11;
         nvtx_functions++) /* of 12 there is a pop, the last that is asked for */
        assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 0);
    nvtx_functions = 12;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    for (int i = 4; i <= 10; i++) {
        lacking = i;
        assert_int_equal(InitializeInjectionNvtx2(nvtx_table), i != 4 && i != 5 && i != 10);
    }
    lacking = -1;
    for (core_lacking = 7; core_lacking <= 11; core_lacking++)
        assert_int_equal(InitializeInjectionNvtx2(nvtx_table), core_lacking == 7 || core_lacking == 10);
    core_lacking = -1;
    nvtx_has = false;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 0);
    nvtx_has = true;
}

/* What a range may be named by. */
static void events_of_nvtx(void **state)
{
    int (*push)(const void *), (*pop)(void);
    const void *(*intern)(void *, const char *);
    struct {
        uint16_t version, size;
        uint32_t before[5];
        uint64_t payload;
        int32_t type;
        const void *message;
    } event = {.version = 3, .type = 1, .message = "text"};
    (void)state;
    assert_int_equal(InitializeInjectionNvtx2(nvtx_table), 1);
    memcpy(&push, &core[8], sizeof push);
    memcpy(&pop, &core[11], sizeof pop);
    memcpy(&intern, &core2[10], sizeof intern);
    assert_int_equal(push(&event), 0);
    assert_string_equal(phase(), "text<");
    event.type = 2; /* of wide characters */
    assert_int_equal(push(&event), 1);
    assert_string_equal(phase(), "text<");
    assert_int_equal(push(NULL), 2);
    assert_string_equal(phase(), "text<");
    event.type = 3;
    event.message = intern(NULL, "registered");
    assert_int_equal(push(&event), 3);
    assert_string_equal(phase(), "registered<text<");
    assert_string_equal(intern(NULL, NULL), "");
    for (int depth = 3; depth >= 0; depth--)
        assert_int_equal(pop(), depth);
    assert_int_equal(pop(), 0);
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
        cmocka_unit_test_setup(phases_nest, on),
        cmocka_unit_test_setup(ranges_of_nvtx_are_phases, on),
        cmocka_unit_test_setup(texts_are_whole, on),
        cmocka_unit_test_setup(a_thread_without_phases, on),
        cmocka_unit_test_setup(an_older_nvtx_is_left_alone, on),
        cmocka_unit_test_setup(events_of_nvtx, on),
        cmocka_unit_test_setup(what_meets_in_a_table_is_told_apart, on),
        cmocka_unit_test_setup(as_many_as_there_is_room_for, on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
