/* Physical allocations that leave the process by a file descriptor.

   The descriptor is the device's memory file, opened anew, with its file position at the allocation; what it is
   (a record) is written far behind all memory in the same file. So it can be passed to another process, and outlives
   the one that exported it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "device/device.h"
#include "space/physical.h"

static const uint64_t magic = UINT64_C(0x7365676d656d3031);

struct record {
    uint64_t magic, offset, size;
    struct sim_physical *physical; /* means something in the exporting process only */
    int64_t process;
    CUmemAllocationProp prop;
    int32_t device; /* of which it is, by the machine's index: `prop` has the exporting program's number */
};

_Static_assert(sizeof(struct record) <= SIM_PHYSICAL_RECORD_BYTES, "one does not reach into the next");

static CUresult physical_export(struct sim_physical *physical, int *ret)
{
    struct record record = {magic, physical->offset, physical->size, physical, getpid(), physical->prop,
        physical->device->index};
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", physical->fd);
    if (pwrite(physical->fd, &record, sizeof record, (off_t)sim_physical_record(physical->offset)) != (ssize_t)sizeof record)
        return CUDA_ERROR_OPERATING_SYSTEM;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || lseek(fd, (off_t)physical->offset, SEEK_SET) < 0 || !sim_physical_note_export(physical, fd)) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *ret = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags)
{
    SIM_ENTER(cuMemExportToShareableHandle);
    if (!sim.config.vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!shareable || flags || type == CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    sim_lock();
    struct sim_physical *physical = (struct sim_physical *)(uintptr_t)handle;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    /* Only what was created with this handle type can be exported as it. */
    if (sim_handle_valid(physical, SIM_KIND_PHYSICAL) && physical->handle_refs &&
        physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        result = physical_export(physical, shareable);
    sim_unlock();
    return result;
}

static bool file_is_same(int a, int b)
{
    struct stat left, right;
    return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev &&
           left.st_ino == right.st_ino;
}

/* Locked. The allocation itself if it is of this process, else one that stands for it. */
static CUresult record_import(int fd, const struct record *record, struct sim_physical **ret)
{
    struct sim_physical *own = record->physical;
    if (record->process == getpid() && sim_handle_valid(own, SIM_KIND_PHYSICAL) && own->offset == record->offset &&
        file_is_same(own->fd, fd)) {
        own->handle_refs++;
        *ret = own;
        return CUDA_SUCCESS;
    }
    struct sim_physical *physical = calloc(1, sizeof *physical);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct sim_device *device = sim_device_by_index(record->device);
    if (!physical || copy < 0) {
        free(physical);
        if (copy >= 0)
            close(copy);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    physical->device = device ? device : sim_device(0); /* one that the program does not see: as in ipc_calls.c */
    physical->fd = copy;
    physical->foreign = true;
    physical->size = record->size;
    physical->offset = record->offset;
    physical->prop = record->prop;
    physical->prop.location.id = physical->device->ordinal;
    physical->handle_refs = 1;
    sim_handle_add(&physical->handle, SIM_KIND_PHYSICAL);
    *ret = physical;
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
    CUmemAllocationHandleType type)
{
    SIM_ENTER(cuMemImportFromShareableHandle);
    if (!sim.config.vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    int fd = (int)(intptr_t)os_handle;
    off_t at = lseek(fd, 0, SEEK_CUR);
    struct record record;
    if (at < 0 || pread(fd, &record, sizeof record, (off_t)sim_physical_record((uint64_t)at)) != (ssize_t)sizeof record ||
        record.magic != magic || record.offset != (uint64_t)at)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_physical *physical;
    CUresult result = record_import(fd, &record, &physical);
    if (result == CUDA_SUCCESS)
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    sim_unlock();
    return result;
}

/* dma-buf needs a driver in the kernel. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size, CUmemRangeHandleType type,
    unsigned long long flags)
{
    SIM_ENTER_WITH(cuMemGetHandleForAddressRange, handle, address, size, type, flags);
    (void)handle, (void)address, (void)size, (void)type, (void)flags;
    return CUDA_ERROR_NOT_SUPPORTED;
}
