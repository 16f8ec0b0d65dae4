#include "space/host_pages.h"

#include <sys/mman.h>
#include <unistd.h>

static struct {
    int fd;
    uint64_t end, used;
} host = {.fd = -1};

bool sim_host_pages_offered(CUmemLocationType location)
{
    enum { HOST_FROM = 13000, HOST_NUMA_FROM = 12090 };
    int from = location == CU_MEM_LOCATION_TYPE_HOST ? HOST_FROM : HOST_NUMA_FROM;
    return sim.config.vmm && sim.config.host_pages && sim.config.driver >= from;
}

static bool host_file_made(void)
{
    int fd = host.fd < 0 ? memfd_create("segalloc-sim-host", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)1 << 62) == 0)
        host.fd = fd;
    else if (fd >= 0)
        close(fd);
    return host.fd >= 0;
}

bool sim_host_pages_charge(uint64_t size, int *ret_fd, uint64_t *ret_offset)
{
    if (!host_file_made() || host.used > sim.config.host_bytes || size > sim.config.host_bytes - host.used)
        return false;
    *ret_fd = host.fd;
    *ret_offset = host.end;
    host.end += size;
    host.used += size;
    return true;
}

void sim_host_pages_discharge(uint64_t size)
{
    host.used -= size;
}

uint64_t sim_host_pages_bytes(void)
{
    return host.used;
}
