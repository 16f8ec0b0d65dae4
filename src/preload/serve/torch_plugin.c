/* PyTorch's pluggable interface: segalloc_torch_malloc() and segalloc_torch_free(). */
#include "process/glibc_symver.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process/process.h"
#include "process/symbols.h"
#include "segalloc/segalloc.h"
#include "serve/alloc.h"
#include "report/refusals.h"
#include "base/size.h"
#include "serve/free.h"
#include "torch/torch_current.h"
#include "torch/torch_symbols.h"
#include "track/torch_mode.h"
#include "torch/torch_oom.h"
#include "track/free_policy.h"
#include "track/streams.h"

/* True if this is for a MemPool's segments. PyTorch's own cache is the allocator in force then, an object with static
   storage, and takes NULL as an error of cudaMalloc. Else the allocator is the pluggable one. */
static bool is_for_pool(void)
{
    void *const *allocator = sg_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    Dl_info info;
    return allocator && *allocator && dladdr(*allocator, &info) && info.dli_fname &&
           strstr(info.dli_fname, "libc10_cuda.so");
}

/* PyTorch takes NULL for a tensor at address 0 and trains on. */
static void end_for_want_of_memory(size_t bytes, int device, CUresult result)
{
    char size[SG_SIZE_TEXT], line[192];
    snprintf(line, sizeof line,
        "%s: PyTorch asked for %s on device %d (CUDA error %d); its pluggable interface has no "
        "way to say that there is none",
        result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "no memory", sg_size_format(bytes, size), device,
        (int)result);
    sg_log_line(line);
    abort();
}

/* PyTorch's pluggable interface: device and stream are given. Where memory has run out PyTorch's own error is thrown
   from here, because PyTorch takes NULL for memory. */
void *segalloc_torch_malloc(size_t bytes, int device, void *stream)
{
    const struct sg_driver *driver = sg_process_driver();
    CUdeviceptr address = 0;
    CUresult result = CUDA_ERROR_NOT_INITIALIZED;
    if (!bytes)
        return NULL;
    sg_torch_mode_change(SG_TORCH_UNKNOWN, SG_TORCH_PLUGGED);
    sg_follow_as_configured();
    sg_memory_torch_plugged();
    if (driver) {
        bool pushed = sg_torch_push_device(driver, device);
        struct sg_core *core = sg_enter_allocation();
        if (core) {
            const struct sg_request origin = {.stream = stream, .has_stream = true, .torch = true, .pluggable = true};
            result = sg_memory_alloc(core, bytes, &origin, &address);
            sg_leave();
        } else {
            result = driver->mem_alloc(&address, bytes);
        }
        sg_torch_pop_device(driver, pushed);
    }
    /* Once the driver has ended the process does, with a status of its own. PyTorch would use NULL for calls that the
       driver refuses too. */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED && !is_for_pool()) {
        sg_refusals_raise();
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            sg_torch_throw_out_of_memory(device, bytes);
        end_for_want_of_memory(bytes, device, result);
    }
    return (void *)(uintptr_t)address;
}

/* A free by the order of its stream. PyTorch tells of other streams by segalloc_torch_record_stream(). */
void segalloc_torch_free(void *pointer, size_t bytes, int device, void *stream)
{
    (void)bytes;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    const struct sg_driver *driver = sg_process_driver();
    if (!address || !driver || sg_process_over())
        return;
    bool pushed = sg_torch_push_device(driver, device);
    struct sg_core *core = sg_process_owns(address) ? sg_enter() : NULL;
    const struct sg_request origin = {.stream = stream, .has_stream = true, .torch = true, .pluggable = true};
    if (core) {
        sg_memory_free(core, address, &origin);
        sg_leave();
    } else {
        sg_memory_free_passthrough(address, &origin);
    }
    sg_torch_pop_device(driver, pushed);
}
