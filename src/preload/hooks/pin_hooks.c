/* Each call that may remember a page pins it before the driver is asked. After the driver's answer it may be too late,
   since another thread may move the page meanwhile. */
#include "hooks/pin_hooks.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#include "process/hooks.h"
#include "process/process.h"
#include "process/stand_ins.h"
#include "track/held_outside.h"

/* Pins the pages of a range in the core, for good. */
void sg_pin(CUdeviceptr address, size_t bytes)
{
    if (!sg_process_owns(address) || sg_process_over())
        return;
    struct sg_core *core = sg_enter();
    if (!core)
        return;
    sg_core_pin(core, address, bytes);
    sg_leave();
}

/* One line for the life of the process, since a program may make such a call for each buffer. */
static void say_once(const char *name)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char line[256];
    if (atomic_flag_test_and_set(&said))
        return;
    snprintf(line, sizeof line,
        "%s, which is not known here, may remember where memory lies: what is allocated now stays where it is, and "
        "is not given back before the end", name);
    sg_log_line(line);
}

/* Pins every page that there is now, on all devices: the call may remember any of them. */
void sg_pin_all(const char *name)
{
    struct sg_core *core = sg_process_over() ? NULL : sg_enter();
    if (!core)
        return; /* nothing was allocated yet */
    bool any = sg_core_pin_all(core);
    sg_leave();
    if (any)
        say_once(name);
}

/* The handle is the page's, whoever gets it afterwards: exported, bound to a multicast object, mapped elsewhere. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *address)
{
    sg_pin((CUdeviceptr)(uintptr_t)address, 1);
    CUresult result = sg_real()->cuMemRetainAllocationHandle(ret, address);
    if (result == CUDA_SUCCESS)
        sg_outside_retained(*ret, (CUdeviceptr)(uintptr_t)address);
    return result;
}

CUresult cuMemGetHandleForAddressRange(void *ret, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
    unsigned long long flags)
{
    sg_pin(address, bytes);
    return sg_real()->cuMemGetHandleForAddressRange(ret, address, bytes, type, flags);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle multicast, size_t offset, CUdeviceptr address, size_t bytes,
    unsigned long long flags)
{
    sg_pin(address, bytes);
    return sg_real()->cuMulticastBindAddr(multicast, offset, address, bytes, flags);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle multicast, CUdevice device, size_t offset,
    CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    sg_pin(address, bytes);
    return sg_real()->cuMulticastBindAddr_v2(multicast, device, offset, address, bytes, flags);
}

CUresult cuLogicalEndpointBindAddr(cuuint32_t endpoint, CUdevice device, cuuint64_t offset, void *address,
    cuuint64_t bytes, unsigned long long flags)
{
    sg_pin((CUdeviceptr)(uintptr_t)address, bytes);
    return sg_real()->cuLogicalEndpointBindAddr(endpoint, device, offset, address, bytes, flags);
}

/* For all memory of a context, which includes what was asked for. */
static CUresult synchronize_memops(CUcontext context)
{
    const struct sg_driver *driver = sg_process_driver();
    CUcontext popped;
    unsigned flags;
    if (!driver->ctx_get_flags || !driver->ctx_set_flags)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = driver->ctx_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->ctx_get_flags(&flags);
    if (result == CUDA_SUCCESS)
        result = driver->ctx_set_flags(flags | CU_CTX_SYNC_MEMOPS);
    driver->ctx_pop(&popped);
    return result;
}

/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is what whoever registers memory with a network card begins with. The driver refuses
   it for memory that is mapped piece by piece, and has a flag of the context instead (CUDA 12.1). */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    const struct sg_real *real = sg_real();
    struct sg_block_info block = {0};
    struct sg_core *core = value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
        sg_process_owns(address) ? sg_enter()
                                                                                                           : NULL;
    if (!core)
        return real->cuPointerSetAttribute(value, attribute, address);
    bool ours = sg_core_block(core, sg_inner(address), &block) == CUDA_SUCCESS;
    if (ours)
        sg_core_pin(core, block.base, block.bytes);
    CUresult result = real->cuPointerSetAttribute(value, attribute, address);
    if (ours && result == CUDA_ERROR_NOT_SUPPORTED)
        result = *(const unsigned *)value ? synchronize_memops(block.context) : CUDA_SUCCESS;
    sg_leave();
    return result;
}
