/* The simulated GPU: what its files share.

   One lock (sim_lock) guards all state: devices, contexts, streams, events, memory. It is never held while bytes are
   copied, while a host function runs, or while anything waits. The names of functions that need it held say so in
   their comments ("locked"). */
#ifndef SIM_H
#define SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wrap.h"

/* Every key is a handle's address. uthash's own functions take their time, and fall through cases unannotated. */
#define HASH_FUNCTION(keyptr, keylen, hashv)                            \
    do {                                                                \
        uint64_t address_;                                              \
        memcpy(&address_, (keyptr), sizeof address_);                   \
        (hashv) = (unsigned)(sg_hash(address_) >> 32); \
    } while (0)
#include <uthash.h>

#include "config.h"
#include "extra.h"
#include "memory/range.h"

/* What is declared here is exported: libcuda's symbols carry no version node. */
#pragma GCC visibility push(default)
#include "cuda_proto.h"
#define ENTRY(name, symbol, version)
#define ENTRY_STREAM(name, symbol, version, variant) __typeof__(symbol) variant;
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#pragma GCC visibility pop

enum sim_call {
#define ENTRY(name, symbol, version) SIM_CALL_##symbol,
#define ENTRY_STREAM(name, symbol, version, variant) SIM_CALL_##symbol,
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
    SIM_CALLS
};

enum {
    SIM_ALIGNMENT = 512,          /* of cuMemAlloc memory, as PyTorch and CuPy count on */
    SIM_GRANULE = 2 * 1024 * 1024 /* the VMM granularity of every NVIDIA part reported */
};

enum sim_state {
    SIM_FRESH,
    SIM_READY,
    SIM_FAILED, /* cuInit has failed: there is no device, or its settings can't be used */
    SIM_FORKED, /* a child of a process that had called cuInit */
    SIM_GONE,   /* the process is exiting */
};

/* Every handle of the program begins with this. A handle is looked up before it is used. */
enum sim_kind {
    SIM_KIND_CONTEXT,
    SIM_KIND_STREAM,
    SIM_KIND_EVENT,
    SIM_KIND_MODULE,
    SIM_KIND_FUNCTION,
    SIM_KIND_POOL,
    SIM_KIND_PHYSICAL,
    SIM_KIND_GRAPH,
    SIM_KIND_NODE,
    SIM_KIND_EXEC,
    SIM_KIND_USER_OBJECT,
    SIM_KIND_GREEN,
    SIM_KIND_RESOURCES
};

struct sim_handle {
    const void *key;
    enum sim_kind kind;
    UT_hash_handle hh;
};

struct sim_device {
    int ordinal;          /* by which the program names it */
    int index;            /* of the machine's device that it is, by which NVML names it */
    uint64_t bytes, used; /* that programs may have, and that they have */
    uint64_t kept;        /* that the driver has besides */
    int fd;            /* the memory: a sparse memfd, addressed by ever-growing offsets */
    uint64_t file_end;
    struct sim_arena *arena; /* cuMemAlloc and pool memory */
    CUcontext primary;
    unsigned primary_refs, primary_flags;
    CUmemoryPool default_pool, pool;
    uint64_t graph_used, graph_high; /* memory of graphs */
    struct segalloc_sim_managed managed;
};

struct sim {
    struct sim_config config;
    struct sim_device devices[SIM_DEVICES_MAX]; /* that the program sees */
    int device_count;
    struct sim_handle *handles;
    struct sim_ranges memory; /* struct sim_memory by address */
    CUcontext contexts;       /* newest first; created ones until they are destroyed */
    uint64_t next_id;         /* of streams, buffers, contexts */
    uint64_t mappings;        /* of the machine's that this process has */
};

extern struct sim sim;

/* Takes a place on the shared card, if the settings name one. */
CUresult sim_card_start(void);

/* Bytes of a device that other processes hold. */
uint64_t sim_card_others(const struct sim_device *device);

/* The one lock of the simulator: all of its state is under it, where nothing else is said. */
void sim_lock(void);
void sim_unlock(void);
pthread_mutex_t *sim_mutex(void); /* for condition variables */
enum sim_state sim_state_now(void);

/* At the start of each entry point. Counts the call, and returns what it must return at once. That is an injected
   fault, the refusal while there is no driver, or CUDA_ERROR_NOT_PERMITTED in a host function. `words` are the arguments
   that refusal.def looks at, from the first; NULL where it looks at none. */
int sim_enter(enum sim_call call, const uintptr_t *words);
#define SIM_ENTER(symbol) SIM_RETURN_IF_NOT(sim_enter(SIM_CALL_##symbol, NULL))
#define SIM_ENTER_WITH(symbol, ...) \
    SIM_RETURN_IF_NOT(sim_enter(SIM_CALL_##symbol, (const uintptr_t[]){SIM_WORDS(__VA_ARGS__)}))

/* Of a form that hands everything on to a later one, which counts it, but is refused otherwise than that. */
#define SIM_REFUSED(symbol, ...) \
    SIM_RETURN_IF_NOT(sim_unavailable(#symbol, (const uintptr_t[]){SIM_WORDS(__VA_ARGS__)}))

#define SIM_RETURN_IF_NOT(call)                                                  \
    do {                                                                         \
        int entered_ = (int)(call);                                              \
        if (entered_ != CUDA_SUCCESS)                                            \
            return entered_ == SIM_ANSWERED ? CUDA_SUCCESS : (CUresult)entered_; \
    } while (0)

/* In place of CUDA_SUCCESS where that is what the call answers without doing anything. */
enum { SIM_ANSWERED = -1 };

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

/* The answer of refusal.def before cuInit, or after it has failed: an error, or SIM_ANSWERED. */
int sim_refusal(const char *symbol, const uintptr_t *words, bool failed);

/* Ends as the driver does where it reads what NULL points to: by SIGSEGV. */
_Noreturn void sim_null_read(void);

/* Has dlsym and the loader find what a driver of that version exports, and no later function. */
void sim_exports_follow(int driver);

/* A call has mapped, unmapped or given access to so many handles, of which each has its cost. */
void sim_count_handles(enum sim_call call, uint64_t count);

/* Calls that this thread has made so far. */
extern _Thread_local uint64_t sim_thread_calls;

/* Set while a simulator thread runs a function of the program. */
extern _Thread_local bool sim_in_host_function;

/* Locked. */
void sim_handle_add(struct sim_handle *handle, enum sim_kind kind);
void sim_handle_drop(struct sim_handle *handle);
bool sim_handle_valid(const void *handle, enum sim_kind kind);

/* Locked; NULL if there is no such device. */
struct sim_device *sim_device(int ordinal);
/* Locked: by the machine's index; NULL if the program does not see it. */
struct sim_device *sim_device_by_index(int index);
/* Starts the devices of these indices of the machine, in this order. */
CUresult sim_devices_start(const int *index, int count);
int sim_driver_version(void);

#endif
