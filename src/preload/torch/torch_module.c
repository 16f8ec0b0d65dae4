/* Calls that PyTorch's words need, through its pluggable allocator's optional hooks and the Python module
   (tools/python). */
#include <string.h>

#include "process/hooks.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "torch/torch_overrides.h"
#include "torch/torch_switch.h"

int segalloc_torch_answers(void)
{
    enum sg_pytorch wanted = sg_process_conf()->pytorch;
    bool asked = !sg_process_is_passthrough() && (wanted == SG_PYTORCH_AUTO || wanted == SG_PYTORCH_DIRECT);
    return asked && sg_torch_overrides_answer();
}

/* torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::beginAllocateToPool(device, pair of the pool's number,
   std::function, which is passed by address), a virtual function. */
#define BEGIN_POOL \
    _ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator19beginAllocateToPoolEaSt4pairIyyESt8functionIFbP11CUstream_stEE
#define NAME_OF(symbol) NAME_OF_(symbol)
#define NAME_OF_(symbol) #symbol
typedef void begin_pool_fn(void *self, int8_t device, uint64_t first, uint64_t second, void *filter);

SG_EXPORT begin_pool_fn BEGIN_POOL;

/* The pluggable allocator's own function of that name, which this library exports before libtorch_cuda.so. PyTorch's is
   called after ours. */
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

/* The start and size of the block that an address lies in; the address itself and 0 where it is none of ours. */
void *segalloc_torch_base(void *pointer, size_t *ret_bytes)
{
    struct sg_block_info block = {.base = (CUdeviceptr)(uintptr_t)pointer};
    struct sg_core *core = sg_enter();
    if (core) {
        CUdeviceptr address = block.base, inner = sg_inner(address);
        if (sg_core_block(core, inner, &block) != CUDA_SUCCESS)
            block.bytes = 0;
        else
            block.base = address - (inner - block.base);
        sg_leave();
    }
    if (ret_bytes)
        *ret_bytes = block.bytes;
    return (void *)(uintptr_t)block.base;
}

int segalloc_in_use(void)
{
    return !sg_process_is_passthrough() && !sg_process_over();
}

/* The value as the configuration would write it; its length like snprintf(). `ipc` may change, so its lock is held. */
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
