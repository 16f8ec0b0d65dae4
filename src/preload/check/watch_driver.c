/* Six calls are replaced. SG_LOCK_CHECK is never held across one. */
#include "check/watch_driver.h"

#include "check/samples.h"
#include "process/locks.h"

static struct sg_driver real; /* the table as it was; written before the core is made */

static CUresult watch_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    CUresult result = real.create(ret, bytes, prop, flags);
    if (result == CUDA_SUCCESS) {
        sg_process_lock(SG_LOCK_CHECK);
        sg_shadow_created(&sg_check_shadow, *ret, bytes);
        sg_process_unlock(SG_LOCK_CHECK);
    }
    return result;
}

/* Noted before: the driver may give the handle to another page at once. */
static CUresult watch_release(CUmemGenericAllocationHandle handle)
{
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_released(&sg_check_shadow, handle);
    sg_process_unlock(SG_LOCK_CHECK);
    return real.release(handle);
}

static CUresult watch_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    CUresult result = real.map(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS) {
        sg_process_lock(SG_LOCK_CHECK);
        sg_shadow_mapped(&sg_check_shadow, address, bytes, offset, handle);
        sg_process_unlock(SG_LOCK_CHECK);
    }
    return result;
}

/* A refused unmapping leaves the page where it is, with its pieces unknown: less is looked at. */
static CUresult watch_unmap(CUdeviceptr address, size_t bytes)
{
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_unmapped(&sg_check_shadow, address, bytes);
    sg_process_unlock(SG_LOCK_CHECK);
    return real.unmap(address, bytes);
}

static CUresult watch_mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    CUresult result = real.mem_alloc(ret, bytes);
    if (result == CUDA_SUCCESS) {
        sg_process_lock(SG_LOCK_CHECK);
        sg_shadow_segment(&sg_check_shadow, *ret, bytes);
        sg_process_unlock(SG_LOCK_CHECK);
    }
    return result;
}

static CUresult watch_mem_free(CUdeviceptr address)
{
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_segment_gone(&sg_check_shadow, address);
    sg_process_unlock(SG_LOCK_CHECK);
    return real.mem_free(address);
}

void sg_watch_driver(struct sg_driver *driver)
{
    real = *driver;
    driver->mem_alloc = watch_mem_alloc;
    driver->mem_free = watch_mem_free;
    if (!sg_driver_has_vmm(driver))
        return;
    driver->create = watch_create;
    driver->release = watch_release;
    driver->map = watch_map;
    driver->unmap = watch_unmap;
}
