/* Physical allocations of virtual memory management: spans of a device's memory file, which handles and mappings refer to. */
#ifndef SIM_PHYSICAL_H
#define SIM_PHYSICAL_H

#include "sim.h"

/* A physical allocation: a span of a device's memory file. It lives while a handle or a mapping refers to it. */
struct sim_physical {
    struct sim_handle handle;
    struct sim_device *device;
    uint64_t size, offset;
    int fd;       /* the device's; or its own, of another process's device */
    bool foreign; /* counted by the process that created it */
    bool exported;
    unsigned handle_refs, mappings;
    CUmemAllocationProp prop;
};

/* Locked. The allocation of the program's handle; NULL: there is none. */
struct sim_physical *sim_physical_of(CUmemGenericAllocationHandle handle);
/* Locked. Gives the memory back once neither a handle nor a mapping is left. Exported memory keeps its bytes, for another
   process may hold it by a descriptor that cannot be seen from here. */
void sim_physical_release_if_unused(struct sim_physical *physical);

#endif
