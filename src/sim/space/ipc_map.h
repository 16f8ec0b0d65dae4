/* Memory of another process of this user, mapped by way of /proc. */
#ifndef SIM_IPC_MAP_H
#define SIM_IPC_MAP_H

#include "space/memory_table.h"

/* Maps part of a file that another process of this user has open as descriptor `fd`. CUDA_ERROR_INVALID_HANDLE where it
   has not. */
CUresult sim_ipc_map(int64_t process, int fd, uint64_t offset, uint64_t bytes, void **ret);
/* Takes the mapping of imported memory away. */
void sim_ipc_unmap(const struct sim_memory *memory);
/* The whole pages around [offset, offset + size): their bytes, and where they begin. */
uint64_t sim_ipc_pages_around(uint64_t offset, uint64_t size, uint64_t *ret_low);

#endif
