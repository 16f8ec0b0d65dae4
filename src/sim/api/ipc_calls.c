/* Legacy handles of memory for other processes. A handle says where the memory lies in the exporting process's memory
   file. The importing process opens that file by way of /proc: both must belong to one user, and the exporter must
   still be there. A handle is opened in another process only, and once a context: further opens return the same
   address and are counted (CUDA Driver API, cuIpcOpenMemHandle()). Memory of a device that the importing process does
   not see can be opened too. It counts as of the device that it is opened on. Source: p2pCanConnect() of NCCL
   (transport/p2p.cc), "CUDA 10.1 and later can use P2P with invisible devices". */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calls.h"
#include "device/context.h"
#include "device/device.h"
#include "memory/allocation.h"
#include "space/arena.h"
#include "space/ipc_map.h"
#include "space/memory_table.h"
#include "streams/queue.h"

static const uint64_t magic = UINT64_C(0x7365676970633031);

struct ticket {
    uint64_t magic;
    int64_t process;
    uint64_t buffer_id, offset, size;
    int32_t fd, device; /* by the machine's index */
};

_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "fits");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    SIM_ENTER_WITH(cuIpcGetMemHandle, handle, address);
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim.config.ipc)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_lock();
    CUcontext context;
    struct sim_memory *memory = sim_memory_find(address);
    struct ticket ticket = {.magic = magic, .process = getpid()};
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && (!memory || memory->kind != SIM_MEMORY_DEVICE || memory->uncharged ||
                                      !sim_arena_offset(memory->device->arena, memory->range.base, &ticket.offset)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        ticket.buffer_id = memory->buffer_id;
        ticket.size = memory->range.size;
        ticket.fd = memory->device->fd;
        ticket.device = memory->device->index;
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &ticket, sizeof ticket);
    }
    sim_unlock();
    return result;
}

/* The memory that the current context has opened already; NULL: none. */
static struct sim_memory *ipc_find(CUcontext context, const struct ticket *ticket)
{
    struct sim_range *range = sim_ranges_at_or_after(&sim.memory, 0);
    for (; range; range = sim_ranges_at_or_after(&sim.memory, range->base + range->size)) {
        struct sim_memory *memory = SIM_CONTAINER(range, struct sim_memory, range);
        if (memory->kind == SIM_MEMORY_IMPORTED && memory->context == context && !memory->leaving &&
            memory->import.process == ticket->process && memory->import.buffer_id == ticket->buffer_id)
            return memory;
    }
    return NULL;
}

static CUresult ipc_import(CUcontext context, const struct ticket *ticket, struct sim_memory **ret)
{
    uint64_t low, length = sim_ipc_pages_around(ticket->offset, ticket->size, &low);
    void *at;
    CUresult result = sim_ipc_map(ticket->process, ticket->fd, low, length, &at);
    if (result != CUDA_SUCCESS)
        return result;
    struct sim_device *device = sim_device_by_index(ticket->device);
    struct sim_memory *memory = sim_memory_enter(SIM_MEMORY_IMPORTED, (uint64_t)(uintptr_t)at + (ticket->offset - low),
        ticket->size, context, device ? device : context->device);
    if (!memory) {
        munmap(at, length);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->import.process = ticket->process;
    memory->import.buffer_id = ticket->buffer_id;
    *ret = memory;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    SIM_ENTER(cuIpcOpenMemHandle_v2);
    struct ticket ticket;
    memcpy(&ticket, &handle, sizeof ticket);
    if (!address || flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim.config.ipc)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (ticket.magic != magic)
        return CUDA_ERROR_INVALID_HANDLE;
    sim_lock();
    CUcontext context;
    struct sim_memory *memory = NULL;
    CUresult result = sim_context_current(&context);
    if (result == CUDA_SUCCESS && ticket.process == getpid())
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && !(memory = ipc_find(context, &ticket)))
        result = ipc_import(context, &ticket, &memory);
    if (result == CUDA_SUCCESS) {
        memory->import.opened++;
        *address = memory->range.base;
    }
    sim_unlock();
    return result;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    SIM_ENTER(cuIpcCloseMemHandle);
    sim_lock();
    struct sim_memory *memory = sim_memory_find(address);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (memory && memory->kind == SIM_MEMORY_IMPORTED && memory->range.base == address && !memory->leaving) {
        result = CUDA_SUCCESS;
        if (--memory->import.opened == 0) {
            CUcontext context = memory->context;
            memory->leaving = true; /* work may be using it */
            result = sim_wait_context(context);
            memory = sim_memory_find(address);
            if (memory && memory->kind == SIM_MEMORY_IMPORTED && memory->leaving)
                sim_memory_drop(memory);
        }
    }
    sim_unlock();
    return result;
}
