/* What PyTorch's words need, through its pluggable allocator's optional hooks and the Python module (tools/python). */
#include <string.h>

#include "inspect/core_state.h"
#include "track/captures.h"
#include "process/hooks.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "torch/torch.h"
#include "torch/torch_allocator.h"

static bool is_device(int device)
{
    return device >= 0 && device < SG_DEVICES_MAX;
}

/* Waits for a device where freed memory still waits for work, and ruins no capture that another thread begins. */
static void run_deferred(struct sg_core *core, int device)
{
    struct sg_stats stats;
    const struct sg_driver *driver = sg_process_driver();
    if (!sg_core_stats(core, device, &stats) || !stats.value[SG_STAT_pending_bytes])
        return;
    bool pushed = sg_torch_push_device(driver, device);
    (void)sg_upward_calls.synchronize();
    sg_torch_pop_device(driver, pushed);
}

int segalloc_torch_answers(void)
{
    enum sg_pytorch wanted = sg_process_conf()->pytorch;
    bool asked = !sg_process_is_passthrough() && (wanted == SG_PYTORCH_AUTO || wanted == SG_PYTORCH_DIRECT);
    return asked && sg_torch_allocator_answers();
}

void segalloc_torch_reset(void)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    for (int device = 0; device < SG_DEVICES_MAX && !sg_captures_active(); device++) {
        run_deferred(core, device);
        sg_core_trim(core, device, 0);
    }
    sg_leave();
}

size_t segalloc_set_limit(int device, size_t bytes)
{
    const struct sg_driver *driver = sg_process_driver();
    if (!driver || !is_device(device) || sg_process_over())
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
    if (driver && is_device(device) && fraction >= 0 && driver->device_total(&total, device) == CUDA_SUCCESS)
        segalloc_set_limit(device, fraction < 1 ? (size_t)(fraction * (double)total) : total);
}

/* torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::beginAllocateToPool(device, pair of the pool's number,
   std::function, which is passed by address), a virtual function. */
#define BEGIN_POOL \
    _ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP11CUstream_stEE
#define NAME_OF(symbol) NAME_OF_(symbol)
#define NAME_OF_(symbol) #symbol
typedef void begin_pool_fn(void *self, int8_t device, uint64_t first, uint64_t second, void *filter);

SG_EXPORT begin_pool_fn BEGIN_POOL;

void BEGIN_POOL(void *self, int8_t device, uint64_t first, uint64_t second, void *filter)
{
    begin_pool_fn *theirs, *ours = BEGIN_POOL;
    void *handle = sg_library_find("libtorch_cuda.so");
    void *symbol = handle ? sg_dlsym()(handle, NAME_OF(BEGIN_POOL)) : NULL;
    memcpy(&theirs, &symbol, sizeof theirs);
    if (handle)
        (void)sg_library_close(handle);
    sg_torch_pool_begins(first, second);
    if (symbol && theirs != ours)
        theirs(self, device, first, second, filter);
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
    if (driver && is_device(device)) {
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

void *segalloc_torch_base(void *pointer, size_t *ret_bytes)
{
    struct sg_block_info block = {.base = (CUdeviceptr)(uintptr_t)pointer};
    struct sg_core *core = sg_enter();
    if (core) {
        if (sg_core_block(core, block.base, &block) != CUDA_SUCCESS)
            block.bytes = 0;
        sg_leave();
    }
    if (ret_bytes)
        *ret_bytes = block.bytes;
    return (void *)(uintptr_t)block.base;
}

void segalloc_reset_peaks(int device)
{
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    if (is_device(device))
        sg_core_reset_peaks(core, device);
    sg_leave();
}

/* The two structs are alike in size, so that the list is turned from one into the other where it stands. */
_Static_assert(sizeof(struct segalloc_piece) == sizeof(struct sg_piece), "alike");

size_t segalloc_pieces(int device, struct segalloc_piece *ret, size_t room)
{
    struct sg_core *core = sg_enter();
    void *list = ret;
    size_t count = core && is_device(device) ? sg_core_pieces(core, device, list, room) : 0;
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

int segalloc_in_use(void)
{
    return !sg_process_is_passthrough() && !sg_process_over();
}

size_t segalloc_option(const char *name, char *ret, size_t size)
{
    char value[SG_PATH_BYTES];
    for (unsigned i = 0; name && i < SG_OPTION_COUNT; i++) {
        if (strcmp(sg_option_info((enum sg_option)i)->name, name) != 0)
            continue;
        const struct sg_conf *conf = sg_process_conf();
        sg_process_lock(SG_LOCK_PROCESS);
        sg_conf_format(conf, (enum sg_option)i, value, sizeof value);
        sg_process_unlock(SG_LOCK_PROCESS);
        size_t length = strlen(value);
        if (size) {
            size_t copied = length < size ? length : size - 1;
            memcpy(ret, value, copied);
            ret[copied] = '\0';
        }
        return length;
    }
    return 0;
}
