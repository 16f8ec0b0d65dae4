/* Mappings: where physical allocations lie in reservations, and which device may do what there.

   A mapping has the same rights all over, by device. Once rights are set on a part of it, it keeps them a granule at a time.
   For example, the second 2 MiB of a mapping of 8 MiB become readable: it has 4 granules with rights of their own then. */
#ifndef SIM_MAPPING_H
#define SIM_MAPPING_H

#include "space/memory_table.h"
#include "space/physical.h"

struct sim_mapping {
    struct sim_range range; /* in its reservation's mappings */
    struct sim_physical *physical;
    uint64_t buffer_id;
    bool far;                              /* a device that it has access for reaches it over a link (link.h) */
    uint32_t on;                           /* bit a device that it takes a mapping of the machine's on */
    unsigned char access[SIM_DEVICES_MAX]; /* CUmemAccess_flags a device */
    /* Where rights were set on parts of the mapping: for each granule, SIM_DEVICES_MAX of them; else NULL. */
    unsigned char *granules;
};

/* Locked, here and below. The mapping that contains the address; or NULL. */
struct sim_mapping *sim_mapping_find(uint64_t address);
/* CUmemAccess_flags by device at an address of the mapping. */
const unsigned char *sim_mapping_rights(const struct sim_mapping *mapping, uint64_t address);
/* True where all of a range of a reservation is mapped with that right, for the device `by` (NULL: for any). */
bool sim_vmm_usable(const struct sim_memory *reservation, uint64_t address, uint64_t size, bool write,
    const struct sim_device *by);
/* The mapping that begins where `mapping` ends; or NULL. */
struct sim_mapping *sim_mapping_next(const struct sim_memory *reservation, const struct sim_mapping *mapping);
/* The first of a run of mappings over [address, address + size) without a gap, and with `whole` of entire ones; or NULL. */
struct sim_mapping *sim_mapping_run(struct sim_memory *reservation, uint64_t address, uint64_t size, bool whole);

/* Takes what [address, end) lacks of the machine's mappings once `access` is set, and gives back what is of no use any
   more. False: there are too few, and nothing has changed. */
bool sim_mapping_charge(struct sim_memory *reservation, struct sim_mapping *first, uint64_t address, uint64_t end,
    const CUmemAccessDesc *access, size_t count);
/* Sets the rights on [base, end) of the mapping; false: out of host memory. */
bool sim_mapping_set_rights(struct sim_mapping *mapping, uint64_t base, uint64_t end, const CUmemAccessDesc *access,
    size_t count);
/* Has the host's pages follow the rights; false where the kernel refuses. */
bool sim_mapping_protect(const struct sim_memory *reservation, uint64_t address, uint64_t end);

#endif
