/* Questions about addresses. Memory mapped piece by piece answers them otherwise than cuMemAlloc's: the driver knows
   pages where the program knows blocks. Here a block's start, size and context are answered, and the driver has the
   rest. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "check/live.h"
#include "check/state.h"
#include "serve/callers.h"
#include "process/hooks.h"
#include "track/ipc.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "hooks/pin_hooks.h"

/* The block behind an address of ours, CUDA_ERROR_INVALID_VALUE when it was freed, CUDA_ERROR_NOT_FOUND when the
   driver is to be asked. */
static CUresult pointer_look_up(CUdeviceptr address, struct sg_block_info *ret)
{
    if (!sg_process_owns(address) || sg_process_over())
        return CUDA_ERROR_NOT_FOUND;
    struct sg_core *core = sg_enter();
    if (!core)
        return CUDA_ERROR_NOT_FOUND;
    CUdeviceptr inner = sg_inner(address);
    CUresult result = inner == address && sg_is_stand_in(address) ? CUDA_ERROR_INVALID_VALUE
                                                                  : sg_core_block(core, inner, ret);
    if (result == CUDA_SUCCESS && !sg_shown_block(address, &ret->base, &ret->bytes) && sg_check_on())
        ret->bytes = sg_live_bytes(ret->base, ret->bytes);
    sg_leave();
    return result;
}

/* Start and size of the block, not of the page. NCCL asks this to register memory piece by piece, so it gets the pages,
   pinned. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct sg_block_info block;
    CUresult result = pointer_look_up(address, &block);
    if (result == CUDA_ERROR_NOT_FOUND)
        return sg_real()->cuMemGetAddressRange_v2(base, bytes, address);
    if (sg_caller_kind(__builtin_return_address(0)) == SG_CALLER_NCCL) {
        /* It walks a buffer with this call to register it mapping by mapping, and fails where those can't be exported:
           then it is to take the block for one of cuMemAlloc's, which it does without. */
        if (result == CUDA_SUCCESS)
            sg_pin(block.base, block.bytes);
        if (result != CUDA_SUCCESS || !block.plain)
            return sg_real()->cuMemGetAddressRange_v2(base, bytes, address);
    }
    if (result != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_FOUND; /* as the driver says of an address without an allocation */
    if (base)
        *base = block.base;
    if (bytes)
        *bytes = block.bytes;
    return CUDA_SUCCESS;
}

/* Answers what is about the block; false: the driver knows. */
static bool block_attribute(const struct sg_block_info *block, CUpointer_attribute attribute, void *data)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = block->context;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = block->base;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = block->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = block->buffer_id;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        if (block->plain)
            *(CUdeviceptr *)data = block->base;
        return block->plain;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        if (block->plain)
            *(size_t *)data = block->bytes;
        return block->plain;
    default:
        return false;
    }
}

/* Attributes of the block are answered here, the rest by the driver: type of memory, device, access. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct sg_block_info block;
    CUresult result = pointer_look_up(address, &block);
    if (result == CUDA_ERROR_NOT_FOUND)
        return sg_real()->cuPointerGetAttribute(data, attribute, address);
    if (result != CUDA_SUCCESS)
        return result;
    if (data && block_attribute(&block, attribute, data))
        return CUDA_SUCCESS;
    return sg_real()->cuPointerGetAttribute(data, attribute, address);
}

/* All attributes are asked of the driver first; then those that are about the block are written over with the block's
   own. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
{
    struct sg_block_info block;
    const struct sg_real *real = sg_real();
    CUresult result = pointer_look_up(address, &block);
    if (result == CUDA_ERROR_NOT_FOUND)
        return real->cuPointerGetAttributes(count, attributes, data, address);
    if (result != CUDA_SUCCESS) {
        /* The driver answers for memory that it doesn't know, with zeros: freed memory of ours is to look like that.
           No mapping of the driver's is in the first page. */
        return real->cuPointerGetAttributes(count, attributes, data, 1);
    }
    result = real->cuPointerGetAttributes(count, attributes, data, address);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
        if (data[i])
            block_attribute(&block, attributes[i], data[i]);
    }
    return result;
}

/* Legacy IPC gives away whole driver allocations. It works for a block of ours only where that is one. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct sg_block_info block;
    const struct sg_real *real = sg_real();
    CUresult result = pointer_look_up(address, &block);
    if (result == CUDA_ERROR_NOT_FOUND)
        return real->cuIpcGetMemHandle(handle, address);
    if (result != CUDA_SUCCESS)
        return result;
    CUdeviceptr base;
    size_t bytes;
    int legacy = 0;
    bool whole = real->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address) ==
                     CUDA_SUCCESS &&
                 legacy && real->cuMemGetAddressRange_v2(&base, &bytes, address) == CUDA_SUCCESS && base == block.base;
    if (whole)
        return real->cuIpcGetMemHandle(handle, address);
    return sg_ipc_refused(legacy);
}
