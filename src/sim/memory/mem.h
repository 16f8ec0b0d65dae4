/* Memory that programs can point at: what lies at an address, and the arenas from which it is handed out. */
#ifndef SIM_MEM_H
#define SIM_MEM_H

#include "device/context.h"
#include "streams/work.h"
#include "sim.h"

enum sim_memory_kind {
    SIM_MEMORY_DEVICE,      /* cuMemAlloc, cuMemAllocPitch, module globals */
    SIM_MEMORY_POOL,        /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
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
    bool uncharged;   /* counts for nothing on the device: what a module brings */
    bool sync_memops;
    bool leaving;     /* freed, but what was submitted before may still use it */
    CUstream leaving_on;             /* of pool memory: freed in the order of this stream; only to be compared */
    struct sim_memory *next_leaving; /* in the pool's list */
    struct sim_graph_memory *graph;  /* of an allocation node: then of no pool */
    struct sim_managed *managed;     /* where managed memory is (managed.h) */
    struct sim_ranges mappings; /* of a reservation: struct sim_mapping */
    struct {                    /* of imported memory */
        int64_t process;        /* that exported it, and its buffer id there */
        uint64_t buffer_id;
        unsigned opened;
    } import;
};

/* Addresses handed out from reservations that are wholly mapped and writable: over a device's memfd, where pages cost
   nothing until they are touched, or over anonymous memory. Locked. */
struct sim_arena;
struct sim_arena *sim_arena_new(struct sim_device *device, uint64_t chunk);
/* 0 when no address space is left. `size` is rounded up to SIM_ALIGNMENT. */
uint64_t sim_arena_take(struct sim_arena *arena, uint64_t size);
/* Where it lies in the device's file; false: it isn't of this arena. */
bool sim_arena_offset(const struct sim_arena *arena, uint64_t address, uint64_t *ret);
/* Any part of what was taken, in units of SIM_ALIGNMENT. Its pages go back to the host and read as zero again. */
void sim_arena_give(struct sim_arena *arena, uint64_t base, uint64_t size);

/* Locked. */
struct sim_memory *sim_memory_find(uint64_t address);
/* Enters an allocation of `size` bytes at `base` into sim.memory; NULL when out of host memory. */
struct sim_memory *sim_memory_enter(enum sim_memory_kind kind, uint64_t base, uint64_t size, CUcontext context,
    struct sim_device *device);
void sim_memory_forget(struct sim_memory *memory);
/* Charged device memory (cuMemAlloc). */
CUresult sim_memory_take(CUcontext context, uint64_t size, bool uncharged, struct sim_memory **ret);
/* Whether nobody is freeing it yet, and, of a graph's memory, a launch has taken it and nobody freed it since. */
bool sim_memory_is_freeable(const struct sim_memory *memory);
/* Gives back whatever kind of memory it is (not a reservation). */
void sim_memory_drop(struct sim_memory *memory);
void sim_memory_drop_context(CUcontext context);
/* Maps part of a file that another process of this user has open as descriptor `fd`. CUDA_ERROR_INVALID_HANDLE where it
   has not. */
CUresult sim_ipc_map(int64_t process, int fd, uint64_t offset, uint64_t bytes, void **ret);
/* Takes the mapping of imported memory away. */
void sim_ipc_unmap(const struct sim_memory *memory);
/* The device's memory as a number: taken, if there is as much once managed memory has made room, and given back
   (card.c). */
bool sim_device_charge(struct sim_device *device, uint64_t bytes);
void sim_device_discharge(struct sim_device *device, uint64_t bytes);
/* Mappings of the machine (config.h), by whichever device: taken, if there are as many, and given back (card.c). */
bool sim_mappings_take(uint64_t count);
void sim_mappings_give(uint64_t count);

/* From the first byte to the last of `count` rows of `width` bytes, `pitch` apart; of one row only its width counts.
   UINT64_MAX where that overflows, which is more than any memory has. */
static inline uint64_t sim_extent(uint64_t count, uint64_t pitch, uint64_t width)
{
    uint64_t extent;
    if (__builtin_mul_overflow(count - 1, pitch, &extent) || __builtin_add_overflow(extent, width, &extent))
        return UINT64_MAX;
    return extent;
}

/* What [address, address + size) is to a copy. */
enum sim_span { SIM_SPAN_PAGEABLE, SIM_SPAN_PINNED, SIM_SPAN_DEVICE, SIM_SPAN_BAD };
/* Locked. Whose memory lies there; NULL for the host's, and where nothing is mapped. */
struct sim_device *sim_device_at(uint64_t address);
/* Locked. BAD: begins in memory of a device, and is not wholly usable there by the device `by` (NULL: by any). */
enum sim_span sim_span(uint64_t address, uint64_t size, bool write, const struct sim_device *by);
/* Locked. Whether all of a range of a reservation is mapped with that right. */
bool sim_vmm_usable(const struct sim_memory *reservation, uint64_t address, uint64_t size, bool write,
    const struct sim_device *by);

/* Locked. Pools. */
CUresult sim_pool_start(struct sim_device *device);
void sim_pool_give(struct sim_memory *memory);
/* At a synchronisation: what is above the release thresholds goes back to the device. */
void sim_pool_trim(void);

#endif
