/* The table of memory: which allocation or reservation lies at which address. It says what is there; `memory/` takes
   it and gives it back. */
#ifndef SIM_MEMORY_TABLE_H
#define SIM_MEMORY_TABLE_H

#include "sim.h"

enum sim_memory_kind {
    SIM_MEMORY_DEVICE, /* cuMemAlloc, cuMemAllocPitch, module globals */
    SIM_MEMORY_POOL,   /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
    SIM_MEMORY_MANAGED,
    SIM_MEMORY_HOST,        /* cuMemAllocHost, cuMemHostAlloc */
    SIM_MEMORY_REGISTERED,  /* cuMemHostRegister */
    SIM_MEMORY_RESERVATION, /* cuMemAddressReserve: mappings lie in it */
    SIM_MEMORY_IMPORTED,    /* cuIpcOpenMemHandle: another process's */
};

struct sim_memory {
    struct sim_range range; /* base and requested size; in sim.memory */
    enum sim_memory_kind kind;
    struct sim_device *device; /* NULL for a reservation */
    CUcontext context;         /* that it dies with; NULL for pool memory and reservations */
    CUmemoryPool pool;
    uint64_t charged; /* bytes taken from its arena */
    uint64_t buffer_id;
    unsigned flags;
    bool uncharged; /* counts for nothing on the device: what a module brings */
    bool sync_memops;
    bool leaving;                    /* freed, but what was submitted before may still use it */
    CUstream leaving_on;             /* of pool memory: freed in the order of this stream; only to be compared */
    struct sim_memory *next_leaving; /* in the pool's list */
    struct sim_graph_memory *graph;  /* of an allocation node: then of no pool */
    struct sim_managed *managed;     /* where managed memory is (managed.h) */
    struct sim_ranges mappings;      /* of a reservation: struct sim_mapping */
    struct {                         /* of imported memory */
        int64_t process;             /* that exported it, and its buffer id there */
        uint64_t buffer_id;
        unsigned opened;
    } import;
};

/* Locked, here and below. The allocation that contains the address; or NULL. */
struct sim_memory *sim_memory_find(uint64_t address);
/* Enters an allocation of `size` bytes at `base` into sim.memory; NULL when out of host memory. */
struct sim_memory *sim_memory_enter(enum sim_memory_kind kind, uint64_t base, uint64_t size, CUcontext context,
    struct sim_device *device);
/* The end of the entry, whatever becomes of the bytes. */
void sim_memory_forget(struct sim_memory *memory);

#endif
