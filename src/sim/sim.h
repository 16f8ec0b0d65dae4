/* The simulated GPU: what all rooms share. That is the lock, what has become of the driver in this process, the devices'
   numbers, and the table of handles.

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

#include "base/wrap.h"

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
#include "range.h"

/* The functions declared here are exported: libcuda's symbols carry no version node. */
#pragma GCC visibility push(default)
#include "driver/cuda_proto.h"
#define ENTRY(name, symbol, version)
#define ENTRY_STREAM(name, symbol, version, variant) __typeof__(symbol) variant;
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#pragma GCC visibility pop

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
    struct {
        uint64_t host_bytes, peer_bytes; /* that its work has touched on host pages; on other devices' pages */
        uint64_t untold;                 /* kernels that did not say what they touch */
    } link;                              /* space/link.h */
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

/* The one lock of the simulator: all of its state is under it, where nothing else is said. */
void sim_lock(void);
void sim_unlock(void);
pthread_mutex_t *sim_mutex(void); /* for condition variables */
enum sim_state sim_state_now(void);
void sim_state_set(enum sim_state state); /* by what starts and ends the driver */

/* Locked. */
void sim_handle_add(struct sim_handle *handle, enum sim_kind kind);
void sim_handle_drop(struct sim_handle *handle);
bool sim_handle_valid(const void *handle, enum sim_kind kind);

/* The version that the driver says it is of: the settings', also before cuInit has read them. */
int sim_driver_version(void);

#endif
