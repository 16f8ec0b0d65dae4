/* A trace and stacks made up for tests of sites and phases. To be included by one file of a program. */
#ifndef SITES_FAKES_H
#define SITES_FAKES_H

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

static inline char *demangle(const char *name, char *room, size_t *bytes, int *ret_status)
{
    assert_null(room);
    assert_null(bytes);
    assert_string_equal(name, "_ZN3net4stepIiEEvRKT_");
    *ret_status = 0;
    return strdup("void net::step<int>(int const&)");
}

static inline void *look_up(void *handle, const char *name)
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

static inline unsigned count(enum segalloc_record_kind kind, uint32_t number)
{
    unsigned found = 0;
    for (unsigned i = 0; i < trace.count; i++)
        found += trace.record[i].kind == kind && (!number || trace.record[i].stream == number);
    return found;
}

static inline uint32_t at(unsigned a, unsigned b)
{
    program.line[0] = a;
    program.line[1] = b;
    program.lines = 2;
    sg_sites_note(sg_this_thread());
    return sg_this_thread()->place.site;
}

static inline int on(void **state)
{
    (void)state;
    conf.sites = true;
    trace.count = 0;
    trace.refuses = false;
    trace.refuses_kind = SEGALLOC_RECORD_NONE;
    program.lines = program.addresses = 0;
    return sg_sites_open(&conf) ? 0 : -1;
}

/* The name of the phase that an allocation of this thread is in, with those around it. */
static inline const char *phase(void)
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

/* NVTX as a program has it: pointers that are NULL until a tool sets them. */
typedef void function(void);
static function *core[16], *core2[16];
static unsigned nvtx_functions = 16;
static int lacking = -1, core_lacking = -1; /* a place of core2, and of core */
static bool nvtx_has = true;

static inline int functions_of(int module, function ****ret_table, unsigned *ret_count)
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

static inline const void *nvtx_table(uint32_t id)
{
    static const struct {
        size_t bytes;
        int (*functions_of)(int module, function ****ret_table, unsigned *ret_count);
    } callbacks = {sizeof callbacks, functions_of};
    return id == 1 ? &callbacks : NULL;
}

static inline const void *none(uint32_t id)
{
    (void)id;
    return NULL;
}

#endif
