/* The host's memory for physical allocations of virtual memory management: a sparse file, as a device's is, made for the
   first of them. Settings: hostpages. For example, with hostpages=8GiB:4MiB the sizes are multiples of 4 MiB, and the
   2,049th page of 4 MiB is refused. */
#ifndef SIM_HOST_PAGES_H
#define SIM_HOST_PAGES_H

#include "sim.h"

/* True if the driver makes pages at such a location: CU_MEM_LOCATION_TYPE_HOST from 13.0 on, HOST_NUMA from 12.9 on. The
   settings may leave both out. Source: the headers of CUDA 12.9 and 13.0. No lock. */
bool sim_host_pages_offered(CUmemLocationType location);

/* All locked. Bytes of the host's memory: taken, and where they lie in which file; false: there are too few. Given back. */
bool sim_host_pages_charge(uint64_t size, int *ret_fd, uint64_t *ret_offset);
void sim_host_pages_discharge(uint64_t size);

/* The bytes that are taken now. */
uint64_t sim_host_pages_bytes(void);

#endif
