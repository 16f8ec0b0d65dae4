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
    SIM_MISCONFIGURED,
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
    int ordinal;
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
    struct sim_device devices[SIM_DEVICES_MAX];
    struct sim_handle *handles;
    struct sim_ranges memory; /* struct sim_memory by address */
    CUcontext contexts;       /* all that ever were, newest first */
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

/* At the start of each entry point: counts the call, and returns what it must return at once: an injected fault,
   CUDA_ERROR_NOT_INITIALIZED before cuInit, CUDA_ERROR_NOT_PERMITTED in a host function, and so on. */
CUresult sim_enter(enum sim_call call);
#define SIM_ENTER(symbol)                                \
    do {                                                 \
        CUresult entered_ = sim_enter(SIM_CALL_##symbol); \
        if (entered_ != CUDA_SUCCESS)                    \
            return entered_;                             \
    } while (0)

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
CUresult sim_devices_start(void);
int sim_driver_version(void);

#endif
