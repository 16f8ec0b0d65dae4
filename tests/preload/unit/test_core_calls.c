/* What the hooks ask of the driver and pass to the core, argument by argument, and what they answer the program. Random
   programs make every call that is hooked. The log core_calls.txt has a line for each call; it must not change.

     test_core_calls LOG            compares, and shows the first line that differs
     test_core_calls --diff LOG     shows all lines that differ
     test_core_calls --write LOG    writes the log anew, after a rule was changed on purpose: its diff is what to review
     test_core_calls --print N      prints program N alone

   For example, this step copies to another device; 1070 is a stream:

     cuMemcpyDtoD_v2 260000 300000 200: block(260000) block(300000)=1 cuMemcpyDtoD_v2(260000 300000 200)=2 -> 2

   Behind the hook stand its arguments, "&" for a pointer. Each call of driver or core follows, with "=" and the answer
   where that is not success. The line ends with the answer to the program, and with what is behind its pointers now.
   "driver" stands for the driver's function of that name with the same arguments. Numbers are hexadecimal, answers
   decimal.

   Each program runs in a process of its own, since some findings hold for good. A hook that is new takes the place of
   others in few steps: see pick(). */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/core_state.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "hooks/copy_hooks.h"
#include "services/hazard_annotations.h"
#include "serve/deferred_frees.h"
#include "track/free_policy.h"
#include "track/graph_blocks.h"
#include "process/hooks.h"
#include "process/process.h"
#include "serve/callers.h"
#include "serve/capture_safe_driver.h"
#include "serve/fast_path.h"
#include "segalloc/segalloc.h"
#include "sites/sites.h"
#include "track/streams.h"
#include "core_calls_log.h"
#include "core_calls_fakes.h"
#include "track/context_pins.h"
#include "wrap.h"

enum { PROGRAMS = 120 };

typedef CUresult any_call(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
    uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static const struct call {
    const char *name, *parameters;
    void (*function)(void);
} calls[] = {
#define HOOK(symbol, base, version, threads, parameters) {#symbol, #parameters, (void (*)(void))symbol},
#include "process/hooks.def"
};

/* What a program leaves out: order that can't be followed, which is given up for good then; and captures. */
static bool orderly, captureless;

/* Those that other files answer, one that has a struct among its arguments, and what this program leaves out. */
static bool is_left_out(const char *name)
{
    static const char *const unseen[] = {"ToCig", "WaitValue", "BatchMemOp", "WaitExternal", "WaitNode", "GraphAddNode",
        "NodeSetParams", "SemaphoresWait", "CtxWaitEvent"};
    bool left_out = strncmp(name, "cuGetProcAddress", 16) == 0 || strcmp(name, "cuIpcOpenEventHandle") == 0 ||
        (captureless && strncmp(name, "cuStreamBegin", 13) == 0);
    for (size_t i = 0; orderly && i < sizeof unseen / sizeof *unseen; i++)
        left_out |= strstr(name, unseen[i]) != NULL;
    return left_out;
}

static const struct call *call_of(const char *name)
{
    size_t i = 0;
    while (strcmp(calls[i].name, name) != 0)
        assert(++i < sizeof calls / sizeof *calls);
    return &calls[i];
}

/* Says "driver" where all that a call did was one call of the driver, of the same name and with the same arguments and
   answer. */
static void shorten(size_t from, const struct call *call, const struct signature *signature, const uintptr_t *a,
    CUresult result)
{
    size_t to = world.length;
    say_driver_call(call->name, signature, a);
    if (result != CUDA_SUCCESS)
        say("=%d", (int)result);
    if (world.length - to == to - from && memcmp(world.text + from, world.text + to, to - from) == 0) {
        world.length = from;
        say(" driver");
    } else {
        world.length = to;
    }
}

/* Makes a call with arguments of its types, but for those that are given: what it is, from `first` on. */
static void make(const struct call *call, int given, uintptr_t first, uintptr_t second)
{
    struct signature signature = signature_of(call->parameters);
    unsigned char before[PARAMETERS_MOST][16];
    uintptr_t a[PARAMETERS_MOST] = {0};
    any_call *function;
    for (int i = 0; i < signature.count; i++) {
        a[i] = i < given ? i ? second : first : argument_for(&signature.list[i], i);
        memcpy(before[i], world.region[i], sizeof before[i]);
    }
    say("%s", call->name);
    for (int i = 0; i < signature.count; i++)
        say(signature.list[i].pointer ? a[i] ? " &" : " 0" : " %llx", (unsigned long long)a[i]);
    say(":");
    memcpy(&function, &call->function, sizeof function);
    size_t from = world.length;
    CUresult result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
    shorten(from, call, &signature, a, result);
    say(" -> %d", (int)result);
    for (int i = 0; i < signature.count; i++) {
        uint64_t word;
        memcpy(&word, world.region[i], sizeof word);
        if (signature.list[i].pointer && memcmp(before[i], world.region[i], sizeof before[i]) != 0)
            say(" %llx", (unsigned long long)word);
    }
}

static void make_any(const char *name)
{
    make(call_of(name), 0, 0, 0);
}

static CUdeviceptr live_block(void)
{
    int block = any_block(/* live */ true);
    return block < 0 ? any_address() : world.block[block].address;
}

/* One hook by chance. Each hook has a number in this step, made from its name, and the largest is taken. So a hook that is
   added to the table is taken in one of 270 such steps, and all others stay as they are. */
static const struct call *pick(void)
{
    uint64_t step = random_next(&world.random), most = 0;
    const struct call *ret = calls;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct random number = {.state = step};
        for (const char *at = calls[i].name; *at; at++)
            number.state = sg_fnv(number.state, (unsigned char)*at);
        uint64_t its = random_next(&number);
        if (its > most) {
            most = its;
            ret = &calls[i];
        }
    }
    return ret;
}

static CUstream captured_stream(void)
{
    for (int i = 2; i < STREAM_COUNT + 3; i++) {
        if (world.capture[i] && !chance(6))
            return (CUstream)(uintptr_t)(i == 2 ? 0 : STREAMS_AT + 16 * (i - 3));
    }
    return any_stream();
}

/* A runtime, and one that is too old for the short way. */
static int runtime_malloc(void **ret, size_t bytes)
{
    return (int)cuMemAlloc_v2((CUdeviceptr *)(void *)ret, bytes);
}

static const struct sg_module module = {.kind = SG_CALLER_OTHER, .malloc = runtime_malloc, .fast_path = true},
                              torch = {.kind = SG_CALLER_TORCH, .malloc = runtime_malloc, .fast_path = true},
                              old = {.kind = SG_CALLER_OTHER, .malloc = runtime_malloc};

/* As callers.c does. */
static void through_runtime(void)
{
    const struct sg_module *caller = chance(3) ? &torch : chance(8) ? &old : &module;
    void *pointer = NULL;
    size_t bytes = 512 + random_below(&world.random, 10000);
    say("runtime's malloc by %d %zx:", (int)caller->kind, bytes);
    bool quick = sg_fast_malloc(caller, &pointer, bytes);
    int result = 0;
    sg_self.caller = (int)caller->kind;
    if (!quick)
        result = caller->malloc(&pointer, bytes);
    sg_self.caller = 0;
    sg_self.pending_error = CUDA_SUCCESS;
    if (!quick && result == 0)
        sg_fast_path_prepare(caller);
    say(" -> %d %d %llx", quick, result, (unsigned long long)(uintptr_t)pointer);
    if (chance(3))
        pointer = (void *)(uintptr_t)live_block();
    if (chance(2))
        say("; freed %d", sg_fast_free(caller, pointer));
}

static void free_somehow(void)
{
    CUdeviceptr address = live_block();
    CUstream stream = captured_stream();
    bool per_thread = chance(2);
    switch (random_below(&world.random, 6)) {
    case 0:
        sg_self.caller = chance(2) ? SG_CALLER_TORCH : SG_CALLER_OTHER;
        make(call_of("cuMemFree_v2"), 1, address, 0);
        sg_self.caller = 0;
        break;
    case 1:
        make(call_of("cuMemFree_v2"), 1, address, 0);
        break;
    case 2:
        make(call_of(per_thread ? "cuMemFreeAsync_ptsz" : "cuMemFreeAsync"), 2, address, (uintptr_t)stream);
        break;
    case 3:
        say("segalloc_free %llx:", address);
        say(" -> %d", segalloc_free((void *)(uintptr_t)address));
        break;
    default:
        make(call_of("cuMemFreeAsync"), 1, address, 0);
        break;
    }
}

static void name_streams(void)
{
    CUstream stream = chance(3) ? captured_stream() : any_stream();
    if (chance(2)) {
        size_t bytes = random_below(&world.random, 5000);
        say("segalloc_malloc_on %zx %lx:", bytes, (unsigned long)(uintptr_t)stream);
        say(" -> %llx", (unsigned long long)(uintptr_t)segalloc_malloc_on(bytes, stream));
        return;
    }
    CUdeviceptr address = live_block();
    say("record_stream %llx %lx:", address, (unsigned long)(uintptr_t)stream);
    if (chance(8))
        segalloc_torch_record_stream((void *)(uintptr_t)address, stream);
    else
        say(" -> %d", segalloc_record_stream((void *)(uintptr_t)address, stream));
}

/* The core asks of the driver what could ruin a capture. */
static struct sg_driver gated;

static void ask_gated(void)
{
    CUevent event = any_event();
    CUstream stream = any_stream();
    CUcontext context = any_context();
    if (chance(16))
        sg_captures_make_driver_safe(sg_process_driver(), &gated);
    sg_self.aside = chance(4);
    int what = (int)random_below(&world.random, 6);
    CUresult result = CUDA_SUCCESS;
    say("gated %d:", what);
    switch (what) {
    case 0:
        result = gated.event_query(event);
        break;
    case 1:
        result = gated.event_record(event, stream);
        break;
    case 2:
        result = gated.event_synchronize(event);
        break;
    case 3:
        result = gated.ctx_synchronize();
        break;
    case 4:
        result = gated.ctx_synchronize_of(context);
        break;
    default:
        if (gated.ctx_record_event)
            result = gated.ctx_record_event(context, event);
        break;
    }
    sg_self.aside = false;
    say(" -> %d", (int)result);
}

static void ask_about_itself(void)
{
    struct segalloc_stat stats[4] = {{0}};
    int device = (int)random_below(&world.random, 4) - 1, count;
    if (chance(2)) {
        say("segalloc_trim %d:", device);
        say(" -> %zx", segalloc_trim(device, 100));
        return;
    }
    say("segalloc_stats %d:", device);
    count = segalloc_stats(device, stats, 4);
    say(" -> %d %s %s %llx %llx", count > 0, stats[1].name ? stats[1].name : "", stats[1].unit ? stats[1].unit : "",
        (unsigned long long)stats[1].value, (unsigned long long)stats[3].peak);
}

static void of_the_layer(void)
{
    int number;
    switch (random_below(&world.random, 6)) {
    case 0:
        say("mark:");
        sg_memory_fence(true);
        break;
    case 1:
        say("the core is told of contexts:");
        if (world.has_core)
            sg_contexts_announce_all(core_calls_core());
        break;
    case 2:
        say("follow:");
        sg_follow_as_configured();
        break;
    case 3:
        say("synchronize:");
        say(" -> %d", (int)sg_captures_synchronize());
        break;
    case 4:
        number = sg_context_pin(any_context());
        say("users: %d", number >= 0);
        if (number >= 0)
            sg_context_unpin(number);
        break;
    default:
        say("a graph goes");
        drop_a_graph();
        break;
    }
}

/* PyTorch's tensors, some of a size, come and go, in a capture mostly. */
static void use_tensors(void)
{
    CUdeviceptr tensors[6] = {0};
    sg_self.caller = SG_CALLER_TORCH;
    for (int i = 0; i < 12; i++) {
        CUdeviceptr *tensor = &tensors[random_below(&world.random, 6)];
        if (*tensor) {
            say("%stensor of PyTorch, free %llx:", i ? "\n" : "", *tensor);
            say(" -> %d", (int)cuMemFree_v2(*tensor));
            *tensor = 0;
        } else {
            say("%stensor of PyTorch:", i ? "\n" : "");
            CUresult result = cuMemAlloc_v2(tensor, 700 * (1 + random_below(&world.random, 2)));
            *tensor = result == CUDA_SUCCESS ? *tensor : 0;
            say(" -> %d %llx", (int)result, *tensor);
        }
    }
    sg_self.caller = 0;
}

static void switch_context(void)
{
    world.current = chance(12) ? NULL : any_context();
    for (int i = 0; world.current && i < 20 && !world.alive[((uintptr_t)world.current - PRIMARIES_AT) / 0x100]; i++)
        world.current = any_context();
    say("current is %lx", (unsigned long)(uintptr_t)world.current);
}

static void end_capture(void)
{
    CUstream stream = captured_stream();
    make(call_of(chance(4) ? "cuStreamEndCapture" : "cuStreamEndCapture_ptsz"), 1, (uintptr_t)stream, 0);
}

static void step(void)
{
    static const char *const often[] = {"cuEventRecord", "cuEventRecord_ptsz", "cuStreamWaitEvent",
        "cuEventSynchronize", "cuEventQuery", "cuStreamSynchronize", "cuCtxSynchronize", "cuStreamQuery",
        "cuStreamWaitEvent_ptsz", "cuGraphLaunch", "cuLaunchKernel", "cuMemcpyAsync", "cuMemcpyDtoDAsync_v2",
        "cuMemGetInfo_v2", "cuEventRecordWithFlags", "cuCtxCreate_v2", "cuDevicePrimaryCtxRetain", "cuCtxDestroy_v2"};
    uint64_t which = random_below(&world.random, 160);
    world.time_ns += 1000;
    world.over = which == 99 && chance(8); /* for a step */
    ANSWER(sg_process_over, world.over);
    if (which < 14)
        make(call_of("cuMemAlloc_v2"), 0, 0, 0);
    else if (which < 20)
        through_runtime();
    else if (which < 32)
        free_somehow();
    else if (which < 40)
        name_streams();
    else if (which < 56)
        make_any(often[random_below(&world.random, sizeof often / sizeof *often)]);
    else if (which < 59 && !captureless)
        make_any(chance(2) ? "cuStreamBeginCapture_v2" : chance(2) ? "cuStreamBeginCapture_v2_ptsz"
                                                                   : "cuStreamBeginCaptureToGraph");
    else if (which < 65)
        end_capture();
    else if (which < 68)
        ask_gated();
    else if (which < 70)
        of_the_layer();
    else if (which < 72)
        switch_context();
    else if (which < 73)
        ask_about_itself();
    else if (which < 75)
        use_tensors();
    else {
        const struct call *call = pick();
        if (!is_left_out(call->name))
            make(call, 0, 0, 0);
    }
    if (world.text[world.length - 1] != '\n')
        say("\n");
}

/* Programs differ in what is configured, and in what there is. */
static void begin(int program)
{
    sg_conf_init(&world.conf);
    begin_step(program, 0);
    world.conf.free_sync = (enum sg_free_sync)(program % 4);
    world.conf.oom_report = program % 3 == 2 ? SG_OOM_EVERY : SG_OOM_NEVER;
    sg_sites_on = program % 4 == 1;
    world.conf.wait_limit = 0.001;
    world.gentle = program % 6 == 4;
    world.old = program % 8 == 5;
    world.direct = program % 3 == 1;
    world.passing = program % 24 == 23;
    orderly = program % 2 == 0;
    captureless = program % 5 < 2;
    world.declares = program % 4 == 2;
    world.conf.limit_visible = program % 5 == 3;
    world.conf.limit_bytes = program % 5 == 3 ? 1 << 29 : 0;
    for (int i = 0; i < MADE_COUNT + 2; i++) {
        world.alive[i] = i < 2;
        world.context_id[i] = (unsigned)new_id();
    }
    for (unsigned i = 0; i < STREAM_COUNT + 3; i++)
        world.stream_id[i] = i;
    world.current = (CUcontext)(uintptr_t)PRIMARIES_AT;
    begin_fakes();
    sg_captures_make_driver_safe(sg_process_driver(), &gated);
    sg_annotate_start();
    if (world.conf.free_sync == SG_FREE_SYNC_STREAM || program % 5 == 0)
        sg_follow_as_configured();
    if (program % 7 != 6) { /* else the second device comes late */
        make_any("cuDevicePrimaryCtxRetain");
        make_any("cuDevicePrimaryCtxRetain");
    }
}

/* Runs a program; its lines are in memory of this process then. */
static void run(int program)
{
    static const char *const syncs[] = {"auto", "strict", "event", "stream", "complete"};
    begin(program);
    world.length = 0;
    say("program %d: free_sync %s%s%s%s%s%s%s\n", program, syncs[world.conf.free_sync],
        world.gentle ? ", no refusals" : "", world.old ? ", old driver" : "",
        world.direct ? ", PyTorch's cache off" : "", world.passing ? ", everything handed on" : "",
        sg_sites_on ? ", sites" : "", world.conf.limit_bytes ? ", limit" : "");
    for (int i = 1; i <= STEPS; i++) {
        begin_step(program, i);
        step();
    }
}

/* Adds what program `number` says, from a process of its own. */
static bool add_program(struct log *log, int number)
{
    int ends[2], status = -1;
    fflush(stdout);
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        FILE *to = fdopen(ends[1], "w");
        close(ends[0]);
        run(number);
        fwrite(world.text, 1, world.length, to);
        fclose(to);
        exit(0); /* which writes what branches were taken */
    }
    close(ends[1]);
    for (ssize_t got = 1; got > 0; log->length += got > 0 ? (size_t)got : 0) {
        log->text = realloc(log->text, log->length + (1 << 16));
        assert(log->text);
        got = read(ends[0], log->text + log->length, 1 << 16);
    }
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "program %d ended with status %x\n", number, status);
        return false;
    }
    return true;
}

int main(int count, char **argument)
{
    static struct log wanted, got;
    bool writes = count == 3 && strcmp(argument[1], "--write") == 0;
    bool shows = count == 3 && strcmp(argument[1], "--diff") == 0;
    const char *path = argument[count - 1];
    if (count == 3 && strcmp(argument[1], "--print") == 0) {
        bool fine = add_program(&got, atoi(path));
        printf("%.*s", (int)got.length, got.text);
        return !fine;
    }
    if (count != 2 && !writes && !shows)
        return 2;
    if (!writes && !read_log(path, &wanted)) {
        fprintf(stderr, "%s: no log of calls\n", path);
        return 1;
    }
    for (int program = 0; program < PROGRAMS; program++) {
        if (!add_program(&got, program))
            return 1;
    }
    if (writes && !write_log(path, &got)) {
        perror(path);
        return 1;
    }
    int differ = writes ? 0 : compare_logs(&wanted, &got, shows);
    if (differ)
        fprintf(stderr,
            "%d lines are not as in %s: --diff shows them, --write takes them after a change that is meant\n", differ,
            path);
    return differ != 0;
}
