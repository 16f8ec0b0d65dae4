#include "sim.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extra.h"
#include "hazard/hazard.h"
#include "streams/executor.h"
#include "streams/schedule.h"
#include "streams/work.h"
#include "visible.h"

struct sim sim = {.config = {.driver = 13000}};
_Thread_local bool sim_in_host_function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(enum sim_state) state;

struct call {
    const char *name, *symbol;
    uint64_t call_ns, handle_ns;
    atomic_uint_fast64_t count, handles;
    struct sim_fault *fault;      /* the last one configured for this name; set once, before SIM_READY */
    atomic_uint_fast64_t *hits;   /* calls of all symbols of that name */
};

static struct call calls[SIM_CALLS] = {
#define ENTRY(name_, symbol_, version) [SIM_CALL_##symbol_] = {.name = #name_, .symbol = #symbol_},
#define ENTRY_STREAM(name_, symbol_, version, variant) [SIM_CALL_##symbol_] = {.name = #name_, .symbol = #symbol_},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
};

static const struct {
    enum sim_call call;
    uint64_t call_ns, handle_ns;
} costs[] = {
#define COST(symbol, call_ns, handle_ns) {SIM_CALL_##symbol, call_ns, handle_ns},
#include "cost.def"
#undef COST
};

static struct sim_fault faults[SIM_FAULTS_MAX];
static atomic_uint_fast64_t fault_hits[SIM_FAULTS_MAX];

void sim_lock(void)
{
    pthread_mutex_lock(&lock);
}

void sim_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

pthread_mutex_t *sim_mutex(void)
{
    return &lock;
}

enum sim_state sim_state_now(void)
{
    return atomic_load_explicit(&state, memory_order_acquire);
}

static CUresult injected(struct call *call)
{
    if (!call->fault)
        return CUDA_SUCCESS;
    uint64_t hit = atomic_fetch_add(call->hits, 1) + 1;
    bool fails = call->fault->onward ? hit >= call->fault->at : hit == call->fault->at;
    return fails ? call->fault->code : CUDA_SUCCESS;
}

/* Calls that say something without a driver having been started. */
static bool works_before_init(enum sim_call call)
{
    switch (call) {
    case SIM_CALL_cuInit:
    case SIM_CALL_cuDriverGetVersion:
    case SIM_CALL_cuGetErrorString:
    case SIM_CALL_cuGetErrorName:
    case SIM_CALL_cuGetProcAddress:
    case SIM_CALL_cuGetProcAddress_v2:
    case SIM_CALL_cuGetExportTable:
        return true;
    case SIM_CALL_cuThreadExchangeStreamCaptureMode:
        return sim_state_now() != SIM_FRESH;
    default:
        return false;
    }
}

_Thread_local uint64_t sim_thread_calls;

static int without_driver(const char *symbol, const uintptr_t *words, enum sim_state now)
{
    if (now == SIM_FORKED || now == SIM_GONE)
        return now == SIM_GONE ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
    return sim_refusal(symbol, words, now == SIM_FAILED);
}

int sim_unavailable(const char *symbol, const uintptr_t *words)
{
    enum sim_state now = sim_state_now();
    return now == SIM_READY ? CUDA_SUCCESS : without_driver(symbol, words, now);
}

/* A child that was forked, and a process that ends, start no driver. */
static bool answers_now(enum sim_call id, enum sim_state now)
{
    return works_before_init(id) && (id != SIM_CALL_cuInit || now == SIM_FRESH || now == SIM_FAILED);
}

int sim_enter(enum sim_call id, const uintptr_t *words)
{
    struct call *call = &calls[id];
    enum sim_state now = sim_state_now();
    if (id != SIM_CALL_cuThreadExchangeStreamCaptureMode) /* asks for nothing */
        sim_thread_calls++;
    atomic_fetch_add_explicit(&call->count, 1, memory_order_relaxed);
    if (now != SIM_READY)
        return answers_now(id, now) ? CUDA_SUCCESS : without_driver(call->symbol, words, now);
    if (sim_in_host_function && !works_before_init(id))
        return CUDA_ERROR_NOT_PERMITTED;
    return injected(call);
}

_Noreturn void sim_null_read(void)
{
    raise(SIGSEGV);
    abort(); /* the signal is handled or ignored; a read again would end the process too */
}

static void before_fork(void)
{
    sim_lock();
}

static void after_fork_parent(void)
{
    sim_unlock();
}

static void after_fork_child(void)
{
    atomic_store(&state, SIM_FORKED);
    sim_unlock();
}

/* A child that the kernel's clone has made, of which no handler was told, has none of the threads that would be waited
   for. */
static pid_t started_by;

static void at_exit(void)
{
    if (sim_state_now() != SIM_READY || started_by != getpid())
        return;
    atomic_store(&state, SIM_GONE);
    sim_executor_stop();
    if (sim.config.hazard_exit && sim_hazard_reports()) {
        fflush(NULL);
        _exit(sim.config.hazard_exit);
    }
}

static void attach_faults(const struct sim_config *config)
{
    memcpy(faults, config->faults, sizeof faults);
    for (unsigned i = 0; i < config->fault_count; i++) {
        bool known = false;
        for (unsigned c = 0; c < SIM_CALLS; c++) {
            if (strcmp(calls[c].name, faults[i].name) != 0)
                continue;
            calls[c].fault = &faults[i];
            calls[c].hits = &fault_hits[i];
            known = true;
        }
        if (!known)
            fprintf(stderr, "SEGALLOC_SIM: fail=%s: no driver function has that name; nothing fails\n",
                faults[i].name);
    }
}

/* The table's, and what the settings say instead. */
static void attach_costs(const struct sim_config *config)
{
    for (unsigned i = 0; i < sizeof costs / sizeof *costs; i++) {
        calls[costs[i].call].call_ns = costs[i].call_ns;
        calls[costs[i].call].handle_ns = costs[i].handle_ns;
    }
    for (unsigned i = 0; i < config->cost_count; i++) {
        const struct sim_cost *cost = &config->costs[i];
        bool known = false;
        for (unsigned c = 0; c < SIM_CALLS; c++) {
            if (strcmp(calls[c].symbol, cost->symbol) != 0)
                continue;
            calls[c].call_ns = cost->call_ns;
            calls[c].handle_ns = cost->handle_ns;
            known = true;
        }
        if (!known)
            fprintf(stderr, "SEGALLOC_SIM: cost=%s: no driver function is exported by that name; no cost changes\n",
                cost->symbol);
    }
}

/* A list that begins with a device of a larger machine is a mistake in the settings; "" and "-1" hide all on purpose. */
static void say_hidden(const char *list)
{
    static bool said;
    if (said || !list || strtol(list, NULL, 10) < sim.config.devices || !sim.config.devices)
        return;
    said = true;
    fprintf(stderr,
        "segalloc simulator: CUDA_VISIBLE_DEVICES=%.40s names no device of a machine that has %d; count=N makes more "
        "(segalloc rehearse: --devices N)\n",
        list, sim.config.devices);
}

/* The devices that CUDA_VISIBLE_DEVICES leaves. The driver reads the environment once, whatever comes of it. */
static CUresult start_devices(void)
{
    static bool read;
    static char *list; /* NULL: all */
    int index[SIM_DEVICES_MAX];
    const char *set = read ? NULL : getenv("CUDA_VISIBLE_DEVICES");
    if (set && !(list = strdup(set)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    read = true;
    int count = sim_visible(&sim.config, list, index);
    if (!count)
        say_hidden(list);
    return count ? sim_devices_start(index, count) : CUDA_ERROR_NO_DEVICE;
}

static CUresult start(void)
{
    static bool complained;
    const char *complaint = sim_config_parse(getenv("SEGALLOC_SIM"), &sim.config);
    if (complaint && !complained)
        fprintf(stderr, "%s\n", complaint);
    complained = complaint != NULL;
    if (complaint)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exports_follow(sim.config.driver);
    started_by = getpid();
    CUresult result = start_devices();
    if (result != CUDA_SUCCESS)
        return result;
    attach_faults(&sim.config);
    if (sim.config.scheduled)
        sim_schedule_start(sim.config.seed, sim.config.run_ahead);
    attach_costs(&sim.config);
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    atexit(at_exit);
    atomic_store_explicit(&state, SIM_READY, memory_order_release);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
    SIM_ENTER(cuInit);
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&start_lock);
    CUresult result = sim_state_now() == SIM_READY ? CUDA_SUCCESS : start();
    if (result != CUDA_SUCCESS)
        atomic_store_explicit(&state, SIM_FAILED, memory_order_release);
    pthread_mutex_unlock(&start_lock);
    return result;
}

int sim_driver_version(void)
{
    enum sim_state now = sim_state_now();
    if (now != SIM_FRESH && now != SIM_FAILED)
        return sim.config.driver;
    struct sim_config config = {.driver = 13000};
    sim_config_parse(getenv("SEGALLOC_SIM"), &config);
    return config.driver;
}

/* What is exported follows the settings from the moment at which the library is loaded. */
__attribute__((constructor)) static void follow_settings(void)
{
    sim_exports_follow(sim_driver_version());
}

CUresult cuDriverGetVersion(int *version)
{
    SIM_ENTER(cuDriverGetVersion);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&start_lock);
    *version = sim_driver_version();
    pthread_mutex_unlock(&start_lock);
    return CUDA_SUCCESS;
}

/* Says once who asked for private tables: its next CUDA call will fail with "named symbol not found", which explains
   nothing. `segalloc run` says so before the start where it finds the runtime in the program's file. */
static void say_whose_runtime(const void *caller)
{
    static atomic_bool said;
    const char *before = getenv("SEGALLOC_SIM_RUNTIME_SAID");
    Dl_info module;
    if (before || atomic_exchange(&said, true) || !dladdr(caller, &module) || !module.dli_fname)
        return;
    const char *slash = strrchr(module.dli_fname, '/');
    fprintf(stderr,
        "segalloc: %s is or has NVIDIA's own runtime, which can't start on the simulated GPU: link the program with "
        "-cudart shared, and without DT_RPATH\n",
        slash ? slash + 1 : module.dli_fname);
}

/* It hands out private tables by a UUID; NVIDIA's own runtime verifies the driver through them. None here. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    SIM_ENTER(cuGetExportTable);
    if (!table || !id)
        return CUDA_ERROR_INVALID_VALUE;
    say_whose_runtime(__builtin_return_address(0));
    *table = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

void sim_handle_add(struct sim_handle *handle, enum sim_kind kind)
{
    handle->key = handle;
    handle->kind = kind;
    HASH_ADD_PTR(sim.handles, key, handle);
}

void sim_handle_drop(struct sim_handle *handle)
{
    HASH_DEL(sim.handles, handle);
}

bool sim_handle_valid(const void *key, enum sim_kind kind)
{
    struct sim_handle *handle;
    HASH_FIND_PTR(sim.handles, &key, handle);
    return handle && handle->kind == kind;
}

void sim_count_handles(enum sim_call call, uint64_t count)
{
    atomic_fetch_add_explicit(&calls[call].handles, count, memory_order_relaxed);
}

static uint64_t cost_of(struct call *call)
{
    return atomic_load_explicit(&call->count, memory_order_relaxed) * call->call_ns +
           atomic_load_explicit(&call->handles, memory_order_relaxed) * call->handle_ns;
}

size_t segalloc_sim_calls(struct segalloc_sim_call *ret_rows, size_t max)
{
    for (size_t i = 0; i < SIM_CALLS && i < max; i++) {
        uint64_t count = atomic_load_explicit(&calls[i].count, memory_order_relaxed);
        ret_rows[i] = (struct segalloc_sim_call){calls[i].symbol, count, cost_of(&calls[i])};
    }
    return SIM_CALLS;
}

uint64_t segalloc_sim_ns(void)
{
    uint64_t total = 0;
    for (size_t i = 0; i < SIM_CALLS; i++)
        total += cost_of(&calls[i]);
    return total;
}
