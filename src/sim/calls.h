/* Calls: what each entry point passes first. A call is counted, refused while there is no driver, and fails where the
   settings inject a fault. Each has a cost, which a counter of virtual time sums up.

   For example, with SEGALLOC_SIM=8GiB,fail=cuMemAlloc:3 the third cuMemAlloc_v2 returns CUDA_ERROR_OUT_OF_MEMORY. It does so
   in SIM_ENTER, before any argument is looked at. The first two and the fourth go on. */
#ifndef SIM_CALLS_H
#define SIM_CALLS_H

#include "refusals.h"
#include "sim.h"

enum sim_call {
#define ENTRY(name, symbol, version) SIM_CALL_##symbol,
#define ENTRY_STREAM(name, symbol, version, variant) SIM_CALL_##symbol,
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
    SIM_CALLS
};

/* At the start of each entry point. Counts the call, and returns what it must return at once. That is an injected
   fault, the refusal while there is no driver, or CUDA_ERROR_NOT_PERMITTED in a host function. `words` are the arguments
   that refusal.def looks at, from the first; NULL where it looks at none. */
int sim_enter(enum sim_call call, const uintptr_t *words);
#define SIM_ENTER(symbol) SIM_RETURN_IF_NOT(sim_enter(SIM_CALL_##symbol, NULL))
#define SIM_ENTER_WITH(symbol, ...) \
    SIM_RETURN_IF_NOT(sim_enter(SIM_CALL_##symbol, (const uintptr_t[]){SIM_WORDS(__VA_ARGS__)}))

/* For a form that hands everything on to a later one, which counts it, but is refused otherwise than that. */
#define SIM_REFUSED(symbol, ...) \
    SIM_RETURN_IF_NOT(sim_unavailable(#symbol, (const uintptr_t[]){SIM_WORDS(__VA_ARGS__)}))

#define SIM_RETURN_IF_NOT(call)                                                  \
    do {                                                                         \
        int entered_ = (int)(call);                                              \
        if (entered_ != CUDA_SUCCESS)                                            \
            return entered_ == SIM_ANSWERED ? CUDA_SUCCESS : (CUresult)entered_; \
    } while (0)

/* Up to nine arguments of any type, as the values of registers. */
#define SIM_WORDS(...)                                                                                            \
    SIM_WORDS_BY_COUNT(__VA_ARGS__, SIM_WORDS_9, SIM_WORDS_8, SIM_WORDS_7, SIM_WORDS_6, SIM_WORDS_5, SIM_WORDS_4, \
        SIM_WORDS_3, SIM_WORDS_2, SIM_WORDS_1, )                                                                  \
    (__VA_ARGS__)
#define SIM_WORDS_BY_COUNT(_1, _2, _3, _4, _5, _6, _7, _8, _9, words, ...) words
#define SIM_WORDS_1(a) (uintptr_t)(a)
#define SIM_WORDS_2(a, ...) (uintptr_t)(a), SIM_WORDS_1(__VA_ARGS__)
#define SIM_WORDS_3(a, ...) (uintptr_t)(a), SIM_WORDS_2(__VA_ARGS__)
#define SIM_WORDS_4(a, ...) (uintptr_t)(a), SIM_WORDS_3(__VA_ARGS__)
#define SIM_WORDS_5(a, ...) (uintptr_t)(a), SIM_WORDS_4(__VA_ARGS__)
#define SIM_WORDS_6(a, ...) (uintptr_t)(a), SIM_WORDS_5(__VA_ARGS__)
#define SIM_WORDS_7(a, ...) (uintptr_t)(a), SIM_WORDS_6(__VA_ARGS__)
#define SIM_WORDS_8(a, ...) (uintptr_t)(a), SIM_WORDS_7(__VA_ARGS__)
#define SIM_WORDS_9(a, ...) (uintptr_t)(a), SIM_WORDS_8(__VA_ARGS__)

/* CUDA_SUCCESS while the driver works, else what a call of that symbol answers without it. `words` and result as of
   sim_enter(). */
int sim_unavailable(const char *symbol, const uintptr_t *words);

/* A call has mapped, unmapped or given access to so many handles, of which each has its cost. */
void sim_count_handles(enum sim_call call, uint64_t count);

/* Calls that this thread has made so far. */
extern _Thread_local uint64_t sim_thread_calls;

/* Set while a simulator thread runs a function of the program. */
extern _Thread_local bool sim_in_host_function;

/* With the settings' faults and costs from now on. A name that is no driver function's is complained of. */
void sim_calls_configure(const struct sim_config *config);

/* Fills up to `max` rows, and returns how many entry points there are. */
size_t sim_calls_rows(struct segalloc_sim_call *ret_rows, size_t max);
/* Virtual time of all calls so far, in ns. */
uint64_t sim_calls_ns(void);

#endif
