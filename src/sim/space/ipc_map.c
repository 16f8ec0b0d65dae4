#include "space/ipc_map.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* The whole pages around [offset, offset + size). */
uint64_t sim_ipc_pages_around(uint64_t offset, uint64_t size, uint64_t *ret_low)
{
    *ret_low = offset / PAGE * PAGE;
    return (offset + size + PAGE - 1) / PAGE * PAGE - *ret_low;
}

CUresult sim_ipc_map(int64_t process, int number, uint64_t offset, uint64_t bytes, void **ret)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)process, number);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_INVALID_HANDLE;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    close(fd);
    if (at == MAP_FAILED)
        return CUDA_ERROR_MAP_FAILED;
    *ret = at;
    return CUDA_SUCCESS;
}

void sim_ipc_unmap(const struct sim_memory *memory)
{
    uint64_t low, length = sim_ipc_pages_around(memory->range.base, memory->range.size, &low);
    munmap((void *)(uintptr_t)low, length);
}
