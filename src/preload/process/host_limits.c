/* A device's kind is found once, its limits at each question.

   The simulator's function is found by its name, as sim/extra.h has it. A simulated device may have a host below a folder.
   One without has none, whatever machine plays it. So a rehearsal of a GB10 has the memory that the card is said to
   have. */
#include "process/host_limits.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "config/conf.h"
#include "core/core.h"
#include "process/symbols.h"

enum { PCI_BYTES = 24, ROOT_BYTES = 256 };

/* The kind of a device, by bits. 0: not looked at. */
enum { KNOWN = 1, INTEGRATED = 2, QUOTAS = 4 };

/* Set before anything here is called, to the same by each thread. */
static struct sg_driver beneath;
static const struct sg_conf *(*configuration)(void);
static _Atomic unsigned char kinds[SG_DEVICES_MAX];
static atomic_bool any;

/* Sets the folder below which the host's files are. False: the device has no host that could be asked. */
static bool limits_root(char ret[ROOT_BYTES])
{
    int (*host)(char *folder, size_t size);
    void *symbol = sg_cuda_symbol("segalloc_sim_host");
    memcpy(&host, &symbol, sizeof host);
    *ret = '\0';
    return !symbol || host(ret, ROOT_BYTES) > 0;
}

/* The address by which quotas name a device. False: the driver does not say. */
static bool limits_pci(int device, char ret[PCI_BYTES])
{
    CUresult (*address)(char *text, int size, CUdevice device);
    void *symbol = sg_cuda_symbol("cuDeviceGetPCIBusId");
    memcpy(&address, &symbol, sizeof address);
    return symbol && address(ret, PCI_BYTES, device) == CUDA_SUCCESS;
}

/* Finds out what a device is. Two threads may at once, and find the same. */
static unsigned limits_kind(int device)
{
    char root[ROOT_BYTES];
    int integrated = 0;
    if ((unsigned)device >= SG_DEVICES_MAX)
        return 0;
    unsigned kind = atomic_load_explicit(&kinds[device], memory_order_relaxed);
    if (kind)
        return kind;
    kind = KNOWN;
    if (limits_root(root)) {
        if (beneath.device_attribute(&integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, device) == CUDA_SUCCESS && integrated)
            kind |= INTEGRATED;
        if (sg_device_quotas_exist(root))
            kind |= QUOTAS;
    }
    atomic_store_explicit(&kinds[device], (unsigned char)kind, memory_order_relaxed);
    if (kind != KNOWN)
        atomic_store(&any, true);
    return kind;
}

/* Before cuInit nothing is known, and the question is asked again. */
bool sg_host_limits_integrated(void)
{
    enum { NONE = 1, SOME = 2 };
    static _Atomic unsigned char found;
    unsigned char state = atomic_load_explicit(&found, memory_order_relaxed);
    int count;
    if (!state && beneath.device_count(&count) == CUDA_SUCCESS) {
        state = NONE;
        for (int device = 0; device < count; device++)
            state = limits_kind(device) & INTEGRATED ? SOME : state;
        atomic_store_explicit(&found, state, memory_order_relaxed);
    }
    return state == SOME;
}

bool sg_host_limits_any(void)
{
    return atomic_load_explicit(&any, memory_order_relaxed);
}

/* Lowers a room to a limit. */
static void limits_at_most(uint64_t *room, uint64_t bytes)
{
    *room = bytes < *room ? bytes : *room;
}

/* A file that cannot be read is no limit: the driver's answer stands then, as on a machine without such files. */
bool sg_host_limits_read(int device, struct sg_host_limits *ret)
{
    char root[ROOT_BYTES], pci[PCI_BYTES];
    unsigned kind = limits_kind(device);
    struct sg_host_limits limits = {.room = UINT64_MAX};
    if (!(kind & (INTEGRATED | QUOTAS)) || !limits_root(root))
        return false;
    double reserve = configuration()->host_reserve;
    limits.integrated = kind & INTEGRATED && sg_host_memory_read(root, reserve, &limits.memory);
    if (limits.integrated) {
        limits.kept = sg_host_memory_kept(&limits.memory, reserve);
        limits.room = sg_host_memory_room(&limits.memory, reserve);
    }
    limits.has_quota = kind & QUOTAS && limits_pci(device, pci) && sg_device_quota_read(root, pci, &limits.quota);
    if (limits.has_quota && limits.quota.hard != UINT64_MAX)
        limits_at_most(&limits.room, limits.quota.hard > limits.quota.used ? limits.quota.hard - limits.quota.used : 0);
    *ret = limits;
    return limits.integrated || limits.has_quota;
}

/* Sets the current context's device where none is named. False: it is not known. */
static bool limits_device(int *device)
{
    return *device >= 0 || (beneath.ctx_get_device && beneath.ctx_get_device(device) == CUDA_SUCCESS);
}

/* A quota's own refusal is the driver's. */
bool sg_host_limits_refuse(int device, uint64_t bytes)
{
    struct sg_host_limits limits;
    return limits_device(&device) && limits_kind(device) & INTEGRATED && sg_host_limits_read(device, &limits) &&
           limits.integrated && bytes > limits.room;
}

/* Bytes that a pool holds and has not given out. A pool that does not say has none. */
static uint64_t pool_idle(int device, CUmemoryPool pool)
{
    CUresult (*current)(CUmemoryPool * ret, CUdevice device);
    void *symbol = sg_cuda_symbol("cuDeviceGetMemPool");
    memcpy(&current, &symbol, sizeof current);
    cuuint64_t used = 0, reserved = 0;
    if ((!pool && (!symbol || current(&pool, device) != CUDA_SUCCESS)) || !beneath.pool_attribute ||
        beneath.pool_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) != CUDA_SUCCESS ||
        beneath.pool_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
        return 0;
    return reserved > used ? reserved - used : 0;
}

/* For example, a pool holds 3 GiB, of which 2 are given out, and the room is 4. It may give out 5 GiB more, and grows by 4. */
bool sg_host_limits_refuse_pool(int device, CUmemoryPool pool, uint64_t bytes)
{
    if (!limits_device(&device) || !(limits_kind(device) & INTEGRATED))
        return false;
    uint64_t idle = pool_idle(device, pool);
    return bytes > idle && sg_host_limits_refuse(device, bytes - idle);
}

/* The driver's own answer may be less, since it leaves out the caches of files. Then it stands: a program is answered with
   no more than without the library. */
void sg_host_limits_bound(size_t *free_bytes)
{
    struct sg_host_limits limits;
    CUdevice device;
    if (beneath.ctx_get_device && beneath.ctx_get_device(&device) == CUDA_SUCCESS &&
        sg_host_limits_read(device, &limits) && limits.room < *free_bytes)
        *free_bytes = limits.room;
}

/* Twice the reserve counts here, and not the reserve alone. A neighbour that grows needs time for the second half, and by
   then the helper has looked again.

   For example, a reserve of 6 GiB and 9 GiB available: the room is 3 GiB, and 3 GiB of what is idle go back. */
uint64_t sg_host_limits_wanted(int device)
{
    struct sg_host_limits limits;
    if (!sg_host_limits_read(device, &limits))
        return 0;
    uint64_t wanted = limits.has_quota ? limits.quota.soft_excess : 0;
    if (limits.integrated && limits.room < limits.kept && limits.kept - limits.room > wanted)
        wanted = limits.kept - limits.room;
    return wanted;
}

/* The three rows of the table. A page of the host's own (CU_MEM_LOCATION_TYPE_HOST) is nobody's device's. */
static CUresult heeding_mem_info(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = beneath.mem_info(free_bytes, total_bytes);
    if (result == CUDA_SUCCESS)
        sg_host_limits_bound(free_bytes);
    return result;
}

static CUresult heeding_mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    return sg_host_limits_refuse(-1, bytes) ? CUDA_ERROR_OUT_OF_MEMORY : beneath.mem_alloc(ret, bytes);
}

static CUresult heeding_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    bool refused = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && sg_host_limits_refuse(prop->location.id, bytes);
    return refused ? CUDA_ERROR_OUT_OF_MEMORY : beneath.create(ret, bytes, prop, flags);
}

void sg_host_limits_heed(struct sg_driver *driver, const struct sg_conf *(*conf)(void))
{
    beneath = *driver;
    configuration = conf;
    driver->mem_info = heeding_mem_info;
    driver->mem_alloc = heeding_mem_alloc;
    if (driver->create)
        driver->create = heeding_create;
}
