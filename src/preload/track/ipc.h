/* Memory for other processes: whether it has to be such as a legacy handle (cuIpcGetMemHandle) can give away.

   Why. A legacy handle gives a whole allocation of the driver's to another process. Memory in regions is mapped page by
   page, and has no such handle. Blocks that are to be given away must each be an allocation of the driver's, which
   costs the sharing of pages.

   How. `ipc` says so, or what is at work in the process. Libraries that share memory are looked for at the first
   allocation, and whenever libraries were loaded since.

   For example, with ipc:auto a program loads UCX by dlopen() after it has allocated 1 GiB. The next cudaMalloc takes
   the slow path, finds UCX among the loaded libraries, and has blocks from here on shareable. The 1 GiB stay as they
   are, and a line says so. */
#ifndef SG_IPC_H
#define SG_IPC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "driver/cuda_abi.h"

/* True if libraries that are loaded, or variables of the environment, say that memory is given away so. Reads the
   environment; takes the loader's lock. */
bool sg_ipc_needed(void);

/* True if memory can be given away from the start, where `ipc` leaves that open. The thread that makes the core calls
   it first. Reads the environment; takes the loader's lock. */
bool sg_ipc_decide(void);

/* The calling thread is about to load a library. Takes no lock. */
void sg_ipc_loading(void);

/* Called by an allocation on the slow path. After libraries were loaded, checks which are in use now. If one needs it,
   memory can be given away from here on, and a line says so. Takes the loader's lock then, no other. */
void sg_ipc_look(void);

/* A handle of memory of ours was asked for and cannot be had; `legacy`: because the block shares an allocation of
   the driver's. From here on memory is such that it can, unless `ipc` forbids it or the driver gives no handles of
   its own either. Prints a line the first time. Returns the program's answer. */
CUresult sg_ipc_refused(bool legacy);

/* True if what was loaded last has not been looked at, so that the next allocation has to go the long way. No lock. */
extern atomic_uint sg_ipc_loads __attribute__((visibility("hidden"))),
    sg_ipc_looked __attribute__((visibility("hidden"))); /* how many loads have begun, and been looked at */
static inline bool sg_ipc_undecided(void)
{
    return atomic_load_explicit(&sg_ipc_loads, memory_order_relaxed) !=
           atomic_load_explicit(&sg_ipc_looked, memory_order_relaxed);
}

#endif
