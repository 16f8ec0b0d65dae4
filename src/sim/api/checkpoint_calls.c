/* Checkpoints of the calling process (CUDA 12.8). Natively the bytes go to host memory, and the process can be frozen with them. Here
   they are in host memory all the time, so a checkpoint gives the devices their room back, and a restore takes it again.

       RUNNING ──Lock──▶ LOCKED ──Checkpoint──▶ CHECKPOINTED ──Restore──▶ LOCKED ──Unlock──▶ RUNNING

   Limits. Other processes are not reached. Calls of a process that is locked are not kept waiting. Managed memory and imported
   memory are refused, as natively; exported memory counts as the process's own.

   For example, a process holds 40 MiB of a card of 256 MiB. Between its checkpoint and its restore another can have all 256 MiB; the
   restore then fails, and can be repeated. */
#include <unistd.h>

#include "calls.h"
#include "device/card.h"
#include "device/context.h"
#include "device/device.h"
#include "space/managed.h"
#include "space/memory_table.h"
#include "streams/queue.h"

/* Under the simulator's lock. */
static CUprocessState state;
static uint64_t given[SIM_DEVICES_MAX]; /* bytes of each device, while checkpointed */

/* Locked. CUDA_SUCCESS if the process is the calling one and in that state. */
static CUresult checkpoint_from(int pid, CUprocessState from)
{
    if (pid != getpid())
        return CUDA_ERROR_NOT_SUPPORTED;
    return state == from ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *ret)
{
    SIM_ENTER(cuCheckpointProcessGetState);
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    if (pid != getpid())
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_lock();
    *ret = state;
    sim_unlock();
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread)
{
    SIM_ENTER(cuCheckpointProcessGetRestoreThreadId);
    if (!thread)
        return CUDA_ERROR_INVALID_VALUE;
    if (pid != getpid())
        return CUDA_ERROR_NOT_SUPPORTED;
    *thread = pid;
    return CUDA_SUCCESS;
}

/* All work is waited for: a process is locked between its calls, and nothing of it runs. */
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    SIM_ENTER(cuCheckpointProcessLock);
    (void)args;
    sim_lock();
    CUresult result = checkpoint_from(pid, CU_PROCESS_STATE_RUNNING);
    for (int i = 0; i < sim.device_count && result == CUDA_SUCCESS; i++)
        result = sim_wait_device(sim_device(i));
    if (result == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_LOCKED;
    sim_unlock();
    return result;
}

/* Locked. */
static bool checkpoint_lacks_nothing(void)
{
    uint64_t at = 0;
    for (struct sim_range *range; (range = sim_ranges_at_or_after(&sim.memory, at)); at = range->base + range->size) {
        enum sim_memory_kind kind = SIM_CONTAINER(range, struct sim_memory, range)->kind;
        if (kind == SIM_MEMORY_MANAGED || kind == SIM_MEMORY_IMPORTED)
            return false;
    }
    return true;
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    SIM_ENTER(cuCheckpointProcessCheckpoint);
    (void)args;
    sim_lock();
    CUresult result = checkpoint_from(pid, CU_PROCESS_STATE_LOCKED);
    if (result == CUDA_SUCCESS && !checkpoint_lacks_nothing())
        result = CUDA_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < sim.device_count && result == CUDA_SUCCESS; i++) {
        given[i] = sim_card_used(sim_device(i));
        sim_device_discharge(sim_device(i), given[i]);
    }
    if (result == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_CHECKPOINTED;
    sim_unlock();
    return result;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    SIM_ENTER(cuCheckpointProcessRestore);
    (void)args;
    sim_lock();
    CUresult result = checkpoint_from(pid, CU_PROCESS_STATE_CHECKPOINTED);
    int had = 0;
    while (had < sim.device_count && result == CUDA_SUCCESS) {
        if (sim_device_charge(sim_device(had), given[had]))
            had++;
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    while (result == CUDA_ERROR_OUT_OF_MEMORY && had > 0) {
        had--;
        sim_device_discharge(sim_device(had), given[had]);
    }
    if (result == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_LOCKED;
    sim_unlock();
    return result;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    SIM_ENTER(cuCheckpointProcessUnlock);
    (void)args;
    sim_lock();
    CUresult result = checkpoint_from(pid, CU_PROCESS_STATE_LOCKED);
    if (result == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_RUNNING;
    sim_unlock();
    return result;
}
