/* Virtual memory management: physical allocations and where they are mapped. */
#ifndef SIM_VMM_H
#define SIM_VMM_H

#include "memory/mem.h"

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

struct sim_mapping {
    struct sim_range range; /* in its reservation's mappings */
    struct sim_physical *physical;
    uint64_t buffer_id;
    uint32_t on;                           /* bit a device that it takes a mapping of the machine's on */
    unsigned char access[SIM_DEVICES_MAX]; /* CUmemAccess_flags a device */
    /* Where rights were set on parts of the mapping: for each granule, SIM_DEVICES_MAX of them; else NULL. */
    unsigned char *granules;
};

/* Locked. The mapping that contains the address; or NULL. */
struct sim_mapping *sim_mapping_find(uint64_t address);
/* Locked. CUmemAccess_flags by device at an address of the mapping. */
const unsigned char *sim_mapping_rights(const struct sim_mapping *mapping, uint64_t address);

#endif
