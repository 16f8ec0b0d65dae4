/* Pools: memory in stream order. An address is given out at once; a free takes effect when the stream reaches it. A pool keeps
   what was freed until a synchronisation finds more than its release threshold.

   For example, a pool has 6 MiB reserved and 2 MiB in use. With a threshold of 0 it gives 4 MiB back to the device at the next
   synchronisation. With a threshold of 5 MiB it gives 1 MiB back. */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include "space/memory_table.h"

struct CUmemPoolHandle_st {
    struct sim_handle handle;
    struct sim_device *device;
    CUmemoryPool next; /* in pools */
    CUmemPoolProps props;
    bool dying; /* destroyed with memory still out */
    uint64_t threshold, reserved, reserved_high, used, used_high;
    int reuse[3]; /* CU_MEMPOOL_ATTR_REUSE_… */
    CUmemAccess_flags access[SIM_DEVICES_MAX];
    struct sim_ranges free;     /* held, used by nobody */
    struct sim_memory *leaving; /* freed in streams that have not got there yet */
};

/* Locked, here and below. NULL when out of host memory. */
CUmemoryPool sim_pool_new(struct sim_device *device, const CUmemPoolProps *props);
/* The default pool of a device. */
CUresult sim_pool_start(struct sim_device *device);
/* Memory for the stream, of which `size` bytes are asked for. Waits for frees under way where there is no other. */
CUresult sim_pool_take(CUmemoryPool pool, CUstream stream, uint64_t size, CUdeviceptr *ret);
void sim_pool_give(struct sim_memory *memory);
/* At a synchronisation: what is above the release thresholds goes back to the device. */
void sim_pool_trim(void);
/* Gives free ranges back to the device until no more than `keep` bytes are held, or all that is held is in use. */
void sim_pool_trim_to(CUmemoryPool pool, uint64_t keep);
/* The end of a pool of which nothing is in use. */
void sim_pool_bury(CUmemoryPool pool);

#endif
