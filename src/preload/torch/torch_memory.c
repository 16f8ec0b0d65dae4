/* PyTorch's calls about memory as a whole: to empty it, to limit it, to list it, to ask for its peaks. */
#include <string.h>

#include "inspect/core_state.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "segalloc/segalloc.h"
#include "torch/torch_current.h"
#include "track/captures.h"

static bool memory_is_device(int device)
{
    return device >= 0 && device < SG_DEVICES_MAX;
}

/* Waits for a device where freed memory still waits for work, and ruins no capture that another thread begins. False:
   the wait has failed, so work may still use what was freed. */
static bool memory_run_deferred(struct sg_core *core, int device)
{
    struct sg_stats stats;
    const struct sg_driver *driver = sg_process_driver();
    if (!sg_core_stats(core, device, &stats) || !stats.value[SG_STAT_pending_bytes])
        return true;
    bool pushed = sg_torch_push_device(driver, device);
    CUresult result = sg_upward_calls.synchronize();
    sg_torch_pop_device(driver, pushed);
    return result == CUDA_SUCCESS;
}

/* torch.cuda.empty_cache(): frees that wait for work are waited for, then all idle pages go back. Not in a capture,
   which a wait would ruin. A device whose work has failed keeps its pages, as PyTorch's cache does then. The error stays
   the context's, so the program's next call answers it: this one has no result. */
void segalloc_torch_reset(void)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    for (int device = 0; device < SG_DEVICES_MAX && !sg_captures_active(); device++) {
        if (memory_run_deferred(core, device))
            sg_core_trim(core, device, 0);
    }
    sg_leave();
}

/* The device may not have been used yet: it is made current, and the core is made if need be. Returns the limit in
   force, 0 where there can be none. */
size_t segalloc_set_limit(int device, size_t bytes)
{
    const struct sg_driver *driver = sg_process_driver();
    if (!driver || !memory_is_device(device) || sg_process_over())
        return 0;
    bool pushed = sg_torch_push_device(driver, device);
    struct sg_core *core = sg_enter_allocation();
    size_t set = core ? sg_core_set_limit(core, device, bytes) : 0;
    if (core)
        sg_leave();
    sg_torch_pop_device(driver, pushed);
    return set;
}

void segalloc_torch_memory_fraction(double fraction, int device)
{
    const struct sg_driver *driver = sg_process_driver();
    size_t total;
    if (driver && memory_is_device(device) && fraction >= 0 && driver->device_total(&total, device) == CUDA_SUCCESS)
        segalloc_set_limit(device, fraction < 1 ? (size_t)(fraction * (double)total) : total);
}

SG_EXPORT void _ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm(void *self, int8_t device,
    size_t *largest);

/* torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::cacheInfo(device, largest), a virtual function: how much
   can be had at once. PyTorch's raises, and convolutions under torch.backends.cudnn.benchmark ask before they try their
   workspaces. There is no cache above us, so what the device has left is the answer, idle pages and the limit
   included. */
void _ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm(void *self, int8_t device,
    size_t *largest)
{
    (void)self;
    const struct sg_driver *driver = sg_process_driver();
    size_t available = 0, total;
    if (driver && memory_is_device(device)) {
        bool pushed = sg_torch_push_device(driver, device);
        struct sg_core *core = sg_enter();
        if (driver->mem_info(&available, &total) != CUDA_SUCCESS)
            available = 0;
        else if (core)
            sg_core_mem_info(core, device, &available, &total);
        if (core)
            sg_leave();
        sg_torch_pop_device(driver, pushed);
    }
    *largest = *largest > available ? *largest : available;
}

/* Peaks begin at what is held now. */
void segalloc_reset_peaks(int device)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    if (memory_is_device(device))
        sg_core_reset_peaks(core, device);
    sg_leave();
}

/* The two structs are alike in size, so that the list is turned from one into the other where it stands. */
_Static_assert(sizeof(struct segalloc_piece) == sizeof(struct sg_piece), "alike");

/* The core fills the list with pieces of its own. They are turned into the open struct one by one in place, since the
   two are of one size. */
size_t segalloc_pieces(int device, struct segalloc_piece *ret, size_t room)
{
    struct sg_core *core = sg_enter();
    void *list = ret;
    size_t count = core && memory_is_device(device) ? sg_core_pieces(core, device, list, room) : 0;
    if (core)
        sg_leave();
    for (size_t i = 0; i < count && i < room; i++) {
        struct sg_piece piece;
        memcpy(&piece, &ret[i], sizeof piece);
        const struct segalloc_piece open = {
            .address = piece.address,
            .bytes = piece.bytes,
            .requested = piece.requested,
            .stream = (uintptr_t)piece.stream,
            .state = (uint32_t)piece.state,
            .small = piece.small,
        };
        memcpy(&ret[i], &open, sizeof open);
    }
    return count;
}
