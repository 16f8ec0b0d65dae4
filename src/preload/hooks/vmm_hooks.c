/* Calls for memory that the program maps itself, where they name memory of ours.

   For the program that is cuMemAlloc's, which these calls refuse. To the driver it is mapped memory: they would
   succeed, and take pages from under other blocks. For example, cuMemUnmap of a block of ours is answered
   CUDA_ERROR_INVALID_VALUE, as for memory of cuMemAlloc. */
#include <stddef.h>
#include <stdint.h>

#include "process/hooks.h"
#include "process/process.h"
#include "serve/callers.h"
#include "services/outside_trace.h"
#include "track/context_wait.h"
#include "track/contexts.h"
#include "track/held_outside.h"
#include "track/torch_mode.h"

static bool mapping_is_ours(CUdeviceptr address)
{
    return !sg_thread_inside() && sg_process_owns(address);
}

/* PyTorch's cache waits for the stream of an expandable segment, and for no other, before it unmaps what is idle there.
   Natively idle tensors go first, and their streams are waited for so. While tensors are ours that cache has pools
   alone, whose memory a graph may use from any stream. So the device is waited for, up to `wait_limit`, as cudaFree of
   a plain segment does. Source: unmapHandles() and release_cached_blocks() in c10/cuda/CUDACachingAllocator.cpp.

   Limits. Other modules' mappings are not waited for, since natively nothing of PyTorch's is unmapped before them. During
   a capture PyTorch unmaps nothing.

   For example, a graph that was captured on a side stream is launched on the default one, and destroyed. empty_cache()
   then unmaps its pool's 300 MiB, while the launch may still run. */
static void wait_for_users_of_pool(CUdeviceptr address, const void *code)
{
    if (!sg_torch_switchable() || sg_thread_inside() || sg_caller_kind(code) != SG_CALLER_TORCH)
        return;
    int device = sg_outside_mapped_on(address);
    CUcontext context = device >= 0 ? sg_contexts_primary_of(device) : NULL;
    if (context)
        (void)sg_context_wait(context); /* a failure is the next call's to say, as without us */
}

/* A mapping of the program's that is gone may have been the last hold of physical memory. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    if (mapping_is_ours(address))
        return CUDA_ERROR_INVALID_VALUE;
    wait_for_users_of_pool(address, __builtin_return_address(0));
    CUresult result = sg_real()->cuMemUnmap(address, bytes);
    if (result == CUDA_SUCCESS) {
        uint64_t devices = sg_outside_unmapped(address, bytes);
        if (devices)
            sg_outside_changed(devices, /* starts */ false);
    }
    return result;
}

/* Mapped memory stays after the release of its handle. */
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    CUresult result = sg_real()->cuMemMap(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS)
        sg_outside_mapped(address, bytes, handle);
    return result;
}

/* A file of physical memory keeps it after its handle's release. An import in this process holds it again. */
CUresult cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
    unsigned long long flags)
{
    CUresult result = sg_real()->cuMemExportToShareableHandle(ret, handle, type, flags);
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        sg_outside_exported(handle, *(const int *)ret);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *file, CUmemAllocationHandleType type)
{
    CUresult result = sg_real()->cuMemImportFromShareableHandle(ret, file, type);
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        uint64_t devices = sg_outside_bit(sg_outside_imported(*ret, (int)(intptr_t)file));
        if (devices)
            sg_outside_took(devices);
    }
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    return mapping_is_ours(address) ? CUDA_ERROR_INVALID_VALUE
                                    : sg_real()->cuMemSetAccess(address, bytes, access, count);
}
