/* Physical allocations of virtual memory management: spans of a device's memory file, which handles and mappings refer to. */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include "sim.h"

static inline void *sim_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* A physical allocation: a span of a device's memory file, or of the host's. It lives while a handle or a mapping refers to
   it. */
struct sim_physical {
    struct sim_handle handle;
    struct sim_device *device; /* NULL: it lies in the host's memory */
    uint64_t size, offset;
    int fd;       /* the device's; or its own, of another process's device */
    bool foreign; /* counted by the process that created it */
    bool exported;
    unsigned handle_refs, mappings;
    CUmemAllocationProp prop;
};

/* Locked. The allocation of the program's handle; NULL: there is none. */
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
/* Locked. Gives the memory back once neither a handle nor a mapping is left, nor a descriptor, in this process or another.
   A process that ends gives all of its memory back. */
void sim_physical_release_if_unused(struct sim_physical *physical);

/* Locked. A file of the device that was opened anew is to be a descriptor of the allocation. False: it can't be. */
bool sim_physical_note_export(struct sim_physical *physical, int fd);

/* Locked. Gives back what only descriptors have held, and no longer do. Nobody says when one is closed, so that whoever counts
   the device's memory asks first. */
void sim_physical_sweep(void);

enum { SIM_PHYSICAL_RECORD_BYTES = 256 };

/* The place in the device's file of the record of an exported allocation, far behind all memory. */
static inline uint64_t sim_physical_record(uint64_t offset)
{
    return (UINT64_C(1) << 61) + offset / SIM_GRANULE * SIM_PHYSICAL_RECORD_BYTES;
}

#endif
