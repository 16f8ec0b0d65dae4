/* See core_calls_fakes.h. */
#include "core_calls_fakes.h"

#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/callers.h"
#include "serve/capture_safe_driver.h"
#include "serve/free.h"
#include "services/alias_probe.h"
#include "process/worker_thread.h"
#include "services/outside_trace.h"
#include "process/environment.h"
#include "process/hooks.h"
#include "track/ipc.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "track/captures.h"
#include "report/refusals.h"
#include "services/recorder.h"
#include "process/symbols.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "torch/torch_current.h"
#include "track/torch_mode.h"
#include "services/trim.h"

struct world world;

bool sg_recorder_on = true;

void say(const char *format, ...)
{
    va_list list;
    if (world.room - world.length < 4096) {
        world.room += 1 << 20;
        world.text = realloc(world.text, world.room);
        assert(world.text);
    }
    va_start(list, format);
    world.length += (size_t)vsnprintf(world.text + world.length, world.room - world.length, format, list);
    va_end(list);
}

bool happens(uint64_t one_in)
{
    return !world.gentle && random_below(&world.answers, one_in) == 0;
}

CUresult answered(CUresult result)
{
    if (result != CUDA_SUCCESS)
        say("=%d", (int)result);
    return result;
}

/* Fakes that answer something else than 0: so once in so many times, or always. */
static const struct odds {
    const char *name;
    uint64_t one_in;
    uint64_t result;
} odds[] = {{"sg_core_awaits", 2, true}, {"sg_core_is_limited", 3, true}, {"sg_core_left_pages", 3, true},
    {"sg_core_take_aliased", 2, true}, {"sg_core_peer_access", 6, CUDA_ERROR_OUT_OF_MEMORY},
    {"sg_core_pin_all", 1, true}, {"sg_trim_ask_others", 3, true}, {"sg_trim_ask_others_of", 3, true},
    {"sg_ipc_refused", 1, CUDA_ERROR_INVALID_VALUE}, {"sg_outside_given", 1, UINT64_MAX},
    {"sg_outside_pool_device", 1, UINT64_MAX}};

/* Questions that change nothing and are asked all the time. */
static bool is_quiet(const struct fakes_function *function)
{
    static const char *const names[] = {"sg_process_over", "sg_process_is_passthrough", "sg_torch_counts",
        "sg_torch_direct", "sg_worker_given_up", "sg_alias_probe_gave_back", "sg_outside_any", "sg_outside_used",
        "sg_outside_traced", "sg_outside_uses_pools", "sg_refusals_ask"};
    bool all_devices = strcmp(function->name, "sg_core_poll") == 0 || strcmp(function->name, "sg_core_trim") == 0;
    bool quiet = all_devices && function->argument[1] >= 2; /* devices that there are not */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        quiet |= strcmp(function->name, names[i]) == 0;
    return quiet;
}

/* A number, which may be the address of a place that the test made: those differ from run to run. */
static void say_number(const char *between, uintptr_t value)
{
    uintptr_t from = (uintptr_t)world.region;
    bool place = value >= from && value < from + sizeof world.region;
    say(place ? "%s@%llx" : "%s%llx", between, (unsigned long long)(place ? value - from : value));
}

static uint64_t say_call(const struct fakes_function *function, uint64_t result)
{
    if (function->kind != FAKES_LIBRARY)
        return driver_call(function);
    bool core = strncmp(function->name, "sg_core_", 8) == 0;
    assert(!core || function->argument[0] == (uintptr_t)core_calls_core());
    if (is_quiet(function))
        return result;
    say(" %s(", function->name + (core ? 8 : 3));
    const char *between = "";
    for (int i = 0; function->kinds[i]; i++) {
        if (function->kinds[i] == 'n')
            say_number(between, function->argument[i]);
        between = function->kinds[i] == 'n' ? " " : between;
    }
    say(")");
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        if (strcmp(odds[i].name, function->name) == 0 && (odds[i].one_in == 1 || happens(odds[i].one_in)))
            result = odds[i].result;
    }
    return result;
}

void begin_fakes(void)
{
    fakes_reset(say_call);
    fill_driver();
    ANSWER(sg_torch_counts, world.direct);
    ANSWER(sg_torch_direct, world.direct);
    ANSWER(sg_process_is_passthrough, world.passing);
}

struct sg_core *core_calls_core(void)
{
    return (struct sg_core *)&world;
}

/* The time. */
uint64_t __wrap_sg_clock_ns(void);
uint64_t __wrap_sg_clock_ns(void)
{
    return world.time_ns;
}

uint64_t __wrap_sg_clock_coarse_ns(void);
uint64_t __wrap_sg_clock_coarse_ns(void)
{
    return world.time_ns;
}

void __wrap_sg_rest(long ns);
void __wrap_sg_rest(long ns)
{
    say(" rest(%ld)", ns);
    world.time_ns += (uint64_t)ns;
}

/* The life of the process. */
static unsigned guards;

void sg_process_lock(enum sg_process_lock guard)
{
    assert(guards >> guard == 0);
    guards |= 1u << guard;
}

void sg_process_unlock(enum sg_process_lock guard)
{
    assert(guards >> guard & 1);
    guards &= ~(1u << guard);
}

void sg_process_assert_locked(enum sg_process_lock guard)
{
    assert(guards >> guard & 1);
}

struct sg_thread *sg_thread_find(void)
{
    sg_self_found = &sg_self;
    return sg_self_found;
}

bool sg_thread_inside(void)
{
    return sg_self.inside;
}

struct sg_core *sg_process_core(void)
{
    return world.has_core ? core_calls_core() : NULL;
}

struct sg_core *sg_process_core_made(void)
{
    return sg_process_core();
}

struct sg_core *sg_enter(void)
{
    if (sg_self.inside || !world.has_core || world.over)
        return NULL;
    sg_self.inside = true;
    return core_calls_core();
}

struct sg_core *sg_enter_allocation(void)
{
    world.has_core |= !world.passing;
    struct sg_core *core = sg_enter();
    if (core && sg_sites_on)
        sg_sites_note(&sg_self);
    return core;
}

void sg_leave(void)
{
    assert(sg_self.inside && guards == 0);
    sg_self.inside = false;
}

bool sg_process_owns(CUdeviceptr address)
{
    return world.has_core && sg_core_owns(core_calls_core(), address);
}

const struct sg_conf *sg_process_conf(void)
{
    return &world.conf;
}

void sg_log_line(const char *line)
{
    say(" SAYS %s;", line);
}

/* The rest of the process. */
enum sg_caller sg_caller_current(void)
{
    return (enum sg_caller)sg_self.caller;
}

enum sg_caller sg_caller_kind(const void *code)
{
    (void)code;
    return SG_CALLER_OTHER;
}

char *sg_environment(const char *name)
{
    static char bytes[] = "1GiB";
    return world.old && strcmp(name, "SEGALLOC_TOLD_BYTES") == 0 ? bytes : NULL;
}

static int declare(uint64_t address, uint64_t bytes, int handed_out)
{
    if (address)
        say(" declare(%llx %llx %d)", (unsigned long long)address, (unsigned long long)bytes, handed_out);
    return 1;
}

void *sg_cuda_symbol(const char *name)
{
    int (*function)(uint64_t, uint64_t, int) = declare;
    void *symbol;
    if (strcmp(name, "segalloc_sim_link") == 0) /* nobody counts */
        return NULL;
    assert(strcmp(name, "segalloc_sim_block") == 0 || strcmp(name, "segalloc_sim_upkeep") == 0);
    memcpy(&symbol, &function, sizeof symbol);
    return world.declares ? symbol : NULL;
}

void sg_sites_note(struct sg_thread *self)
{
    self->place.shown = self->place.site = (uint32_t)random_below(&world.answers, 100);
    self->place.phase = self->place.site % 7;
}

/* The one that is captured, mostly. */
bool sg_torch_stream(CUstream *ret)
{
    *ret = (CUstream)(uintptr_t)(STREAMS_AT + 16 * random_below(&world.answers, 3));
    for (int i = 3; i < STREAM_COUNT + 3; i++) {
        if (world.capture[i] && random_below(&world.answers, 8))
            *ret = (CUstream)(uintptr_t)(STREAMS_AT + 16 * (i - 3));
    }
    return !happens(8);
}

CUresult sg_worker_run(CUresult (*run)(void *user), void *user)
{
    say(" aside");
    return run(user);
}

uint64_t sg_trim_idle_of_others(void)
{
    return happens(3) ? 0x4000000 : 0;
}

/* These are not asked for: names are another layer's. */
#define NOBODYS(symbol, parameters) \
    CUresult symbol parameters \
    { \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOBODYS(cuGetProcAddress, (const char *name, void **ret, int version, cuuint64_t flags))
NOBODYS(cuGetProcAddress_v2,
    (const char *name, void **ret, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *found))
#pragma GCC diagnostic pop

const struct sg_upward_calls sg_upward_calls = {.free = sg_memory_free, .synchronize = sg_captures_synchronize};
