#include "calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "inherited.h"

_Thread_local bool sim_in_host_function;

struct call {
    const char *name, *symbol;
    uint64_t call_ns, handle_ns;
    atomic_uint_fast64_t count, handles;
    struct sim_fault *fault;    /* the last one configured for this name; set once, before SIM_READY */
    atomic_uint_fast64_t *hits; /* calls of all symbols of that name */
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
static unsigned fault_count;
static atomic_uint_fast64_t fault_hits[SIM_FAULTS_MAX];

static CUresult call_fault(struct call *call)
{
    if (!call->fault)
        return CUDA_SUCCESS;
    uint64_t hit = atomic_fetch_add(call->hits, 1) + 1;
    bool fails = call->fault->onward ? hit >= call->fault->at : hit == call->fault->at;
    return fails ? call->fault->code : CUDA_SUCCESS;
}

/* Calls that say something without a driver having been started. */
static bool call_works_before_init(enum sim_call call)
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

static int call_without_driver(const char *symbol, const uintptr_t *words, enum sim_state now)
{
    if (now == SIM_FORKED || now == SIM_GONE)
        return now == SIM_GONE ? CUDA_ERROR_DEINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
    return sim_refusal(symbol, words, sim_driver_version(), now == SIM_FAILED);
}

int sim_unavailable(const char *symbol, const uintptr_t *words)
{
    enum sim_state now = sim_state_now();
    return now == SIM_READY ? CUDA_SUCCESS : call_without_driver(symbol, words, now);
}

static void calls_attach_faults(const struct sim_config *config);

static void calls_attach_early(void)
{
    struct sim_config config = {0};
    if (!sim_config_parse(sim_inherited_setting(), &config))
        calls_attach_faults(&config);
}

/* A fault of a call that works before cuInit, which reads the settings for all others. A setting with a mistake is said by cuInit. */
static CUresult call_fault_early(struct call *call)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, calls_attach_early);
    return call_fault(call);
}

/* A child that was forked, and a process that ends, start no driver. */
static bool call_answers_now(enum sim_call id, enum sim_state now)
{
    return call_works_before_init(id) && (id != SIM_CALL_cuInit || now == SIM_FRESH || now == SIM_FAILED);
}

int sim_enter(enum sim_call id, const uintptr_t *words)
{
    struct call *call = &calls[id];
    enum sim_state now = sim_state_now();
    if (id != SIM_CALL_cuThreadExchangeStreamCaptureMode) /* asks for nothing */
        sim_thread_calls++;
    atomic_fetch_add_explicit(&call->count, 1, memory_order_relaxed);
    if (now != SIM_READY)
        return call_answers_now(id, now) ? (int)call_fault_early(call) : call_without_driver(call->symbol, words, now);
    if (sim_in_host_function && !call_works_before_init(id))
        return CUDA_ERROR_NOT_PERMITTED;
    return call_fault(call);
}

static bool calls_have_faults(const struct sim_config *config)
{
    bool same = config->fault_count == fault_count;
    for (unsigned i = 0; i < fault_count && same; i++) {
        const struct sim_fault *a = &faults[i], *b = &config->faults[i];
        same = strcmp(a->name, b->name) == 0 && a->at == b->at && a->onward == b->onward && a->code == b->code;
    }
    return same;
}

/* Faults that were attached early are not written again: another thread may be reading them. */
static void calls_attach_faults(const struct sim_config *config)
{
    if (calls_have_faults(config))
        return;
    fault_count = config->fault_count;
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
            fprintf(stderr, "SEGALLOC_SIM: fail=%s: no driver function has that name; nothing fails\n", faults[i].name);
    }
}

/* The table's, and what the settings say instead. */
static void calls_attach_costs(const struct sim_config *config)
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

void sim_calls_configure(const struct sim_config *config)
{
    calls_attach_faults(config);
    calls_attach_costs(config);
}

void sim_count_handles(enum sim_call call, uint64_t count)
{
    atomic_fetch_add_explicit(&calls[call].handles, count, memory_order_relaxed);
}

static uint64_t call_cost(struct call *call)
{
    return atomic_load_explicit(&call->count, memory_order_relaxed) * call->call_ns +
           atomic_load_explicit(&call->handles, memory_order_relaxed) * call->handle_ns;
}

size_t sim_calls_rows(struct segalloc_sim_call *ret_rows, size_t max)
{
    for (size_t i = 0; i < SIM_CALLS && i < max; i++) {
        uint64_t count = atomic_load_explicit(&calls[i].count, memory_order_relaxed);
        ret_rows[i] = (struct segalloc_sim_call){calls[i].symbol, count, call_cost(&calls[i])};
    }
    return SIM_CALLS;
}

uint64_t sim_calls_ns(void)
{
    uint64_t total = 0;
    for (size_t i = 0; i < SIM_CALLS; i++)
        total += call_cost(&calls[i]);
    return total;
}
