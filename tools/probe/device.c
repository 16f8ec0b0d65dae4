/* Answers of the device and its driver about themselves, and about memory that is mapped. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe.h"

static int device_attribute(CUdevice_attribute which)
{
    int value = -1;
    return probe.cu.cuDeviceGetAttribute(&value, which, probe.device) == CUDA_SUCCESS ? value : -1;
}

bool probe_device(void)
{
    size_t total = 0, available = 0, seen = 0, least = 0, recommended = 0;
    int version = 0, devices = 0;
    char name[96] = "";
    CUmemAllocationProp prop = probe_prop();
    HAVE(cuMemGetAllocationGranularity);
    NEED(probe.cu.cuDeviceGetName(name, sizeof name, probe.device));
    NEED(probe.cu.cuDriverGetVersion(&version));
    NEED(probe.cu.cuDeviceGetCount(&devices));
    NEED(probe.cu.cuDeviceTotalMem_v2(&total, probe.device));
    NEED(probe.cu.cuMemGetInfo_v2(&available, &seen));
    CUresult vmm = probe.cu.cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    (void)probe.cu.cuMemGetAllocationGranularity(&recommended, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    probe_say("'device': '%s', 'driver': %d, 'devices': %d, 'capability': %d, 'simulated': %s, 'kernels': '%s'", name,
        version, devices,
        device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
            device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        probe.simulated ? "true" : "false",
        probe.kernels.put    ? "all"
        : probe.kernels.spin ? "spin"
                             : "none");
    int peer = 0;
    CUdevice other;
    if (devices > 1 && probe.cu.cuDeviceCanAccessPeer &&
        probe.cu.cuDeviceGet(&other, probe.ordinal ? 0 : 1) == CUDA_SUCCESS &&
        probe.cu.cuDeviceCanAccessPeer(&peer, probe.device, other) == CUDA_SUCCESS)
        probe_say("'peer_access': %d", peer);
    probe_say("'total_bytes': %zu, 'info_total_bytes': %zu, 'free_bytes': %zu", total, seen, available);
    probe_say("'vmm': %d, 'granularity_code': %d, 'granularity': %zu, 'recommended': %zu, 'posix_handles': %d, "
              "'fabric_handles': %d, 'rdma': %d, 'rdma_vmm': %d, 'dma_buf': %d, 'multicast': %d, 'managed': %d, "
              "'concurrent_managed': %d, 'integrated': %d, 'host_pages': %d",
        device_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), (int)vmm, least, recommended,
        device_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        device_attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
        device_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
        device_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
        device_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
        device_attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), device_attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
        device_attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
        device_attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED),
        device_attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
    return true;
}

/* Properties that handles may be asked to have. */
static const struct property {
    const char *name;
    CUmemAllocationHandleType type;
    unsigned char rdma;
} properties[] = {
    {"bare", CU_MEM_HANDLE_TYPE_NONE, 0},
    {"rdma", CU_MEM_HANDLE_TYPE_NONE, 1},
    {"fd", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0},
    {"fd and rdma", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1},
    {"fabric", CU_MEM_HANDLE_TYPE_FABRIC, 0},
    {"fabric and rdma", CU_MEM_HANDLE_TYPE_FABRIC, 1},
};

static CUmemAllocationProp prop_of(const struct property *property)
{
    CUmemAllocationProp prop = probe_prop();
    prop.requestedHandleTypes = property->type;
    prop.allocFlags.gpuDirectRDMACapable = property->rdma;
    return prop;
}

/* The code with which a range becomes a dma-buf; -1 where the driver has no such call. */
static int dma_buf(CUdeviceptr address, size_t bytes)
{
    int fd = -1;
    if (!probe.cu.cuMemGetHandleForAddressRange)
        return -1;
    CUresult result =
        probe.cu.cuMemGetHandleForAddressRange(&fd, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result == CUDA_SUCCESS)
        close(fd);
    return (int)result;
}

static int export_of(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type)
{
    union {
        int fd;
        CUmemFabricHandle fabric;
    } exported;
    if (!probe.cu.cuMemExportToShareableHandle || type == CU_MEM_HANDLE_TYPE_NONE)
        return -1;
    CUresult result = probe.cu.cuMemExportToShareableHandle(&exported, handle, type, 0);
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        close(exported.fd);
    return (int)result;
}

static bool try_property(const struct property *property)
{
    CUmemAllocationProp prop = prop_of(property);
    size_t granule = 0;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUresult asked = probe.cu.cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    size_t bytes = asked == CUDA_SUCCESS ? granule : probe.granule;
    uint64_t began = probe_ns();
    CUresult made = probe.cu.cuMemCreate(&handle, bytes, &prop, 0);
    uint64_t ns = probe_ns() - began;
    if (made != CUDA_SUCCESS) {
        probe_say("'handle': '%s', 'granularity_code': %d, 'granularity': %zu, 'create': %d", property->name,
            (int)asked, granule, (int)made);
        return true;
    }
    NEED(probe.cu.cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CUresult mapped = probe.cu.cuMemMap(address, bytes, 0, handle, 0);
    CUresult access = mapped == CUDA_SUCCESS ? probe_access(address, bytes) : mapped;
    probe_say("'handle': '%s', 'granularity_code': %d, 'granularity': %zu, 'create': 0, 'create_ns': %llu, 'map': %d, "
              "'access': %d, 'export': %d, 'dma_buf': %d",
        property->name, (int)asked, granule, (unsigned long long)ns, (int)mapped, (int)access,
        export_of(handle, property->type), access == CUDA_SUCCESS ? dma_buf(address, bytes) : -1);
    if (mapped == CUDA_SUCCESS)
        NEED(probe.cu.cuMemUnmap(address, bytes));
    NEED(probe.cu.cuMemAddressFree(address, bytes));
    NEED(probe.cu.cuMemRelease(handle));
    return true;
}

bool probe_handles(void)
{
    HAVE(cuMemCreate);
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        if (!try_property(&properties[i]))
            return false;
    return true;
}

/* An answer of the driver about an address: the attribute, or the code with which it refuses, as JSON. */
static void pointer_show(const char *name, CUpointer_attribute which, CUdeviceptr address, CUdeviceptr from)
{
    uint64_t value = 0;
    CUresult result = probe.cu.cuPointerGetAttribute(&value, which, address);
    bool is_address = which == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || which == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR;
    if (is_address && result == CUDA_SUCCESS)
        probe_say("'attribute': '%s', 'code': 0, 'from_first_mapping': %lld", name, (long long)(value - from));
    else
        probe_say("'attribute': '%s', 'code': %d, 'value': %llu", name, (int)result, (unsigned long long)value);
}

static const struct property *property_richest(void)
{
    for (int i = 3; i > 0; i--) {
        CUmemAllocationProp prop = prop_of(&properties[i]);
        CUmemGenericAllocationHandle handle;
        if (probe.cu.cuMemCreate(&handle, probe.granule, &prop, 0) == CUDA_SUCCESS) {
            (void)probe.cu.cuMemRelease(handle);
            return &properties[i];
        }
    }
    return &properties[0];
}

static void ask_of_second(CUdeviceptr first, size_t page, int count)
{
    static const struct {
        const char *name;
        CUpointer_attribute which;
    } asked[] = {{"range start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
        {"range size", CU_POINTER_ATTRIBUTE_RANGE_SIZE}, {"mapped", CU_POINTER_ATTRIBUTE_MAPPED},
        {"mapping base", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR}, {"mapping size", CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
        {"handle types", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
        {"RDMA capable", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
        {"legacy IPC", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE}, {"managed", CU_POINTER_ATTRIBUTE_IS_MANAGED}};
    CUdeviceptr base = 0, at = first + page + 4096;
    size_t bytes = 0;
    unsigned sync = 1;
    CUipcMemHandle ipc;
    CUmemGenericAllocationHandle handle;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        pointer_show(asked[i].name, asked[i].which, at, first);
    CUresult ranged = probe.cu.cuMemGetAddressRange_v2(&base, &bytes, at);
    int set = probe.cu.cuPointerSetAttribute
                  ? (int)probe.cu.cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at)
                  : -1;
    int given = probe.cu.cuIpcGetMemHandle ? (int)probe.cu.cuIpcGetMemHandle(&ipc, at) : -1;
    int kept = probe.cu.cuMemRetainAllocationHandle
                   ? (int)probe.cu.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)at)
                   : -1;
    if (kept == 0)
        (void)probe.cu.cuMemRelease(handle);
    probe_say("'address_range_code': %d, 'address_range_from_first': %lld, 'address_range_bytes': %zu, "
              "'mapping_bytes': %zu, 'sync_memops': %d, 'ipc': %d, 'retain': %d, 'dma_buf_of_1': %d, 'dma_buf_of_%d': "
              "%d",
        (int)ranged, (long long)(base - first), bytes, page, set, given, kept, dma_buf(first + page, page), count,
        dma_buf(first, (size_t)count * page));
}

/* Memory that legacy IPC is made for. */
static bool ask_of_plain(void)
{
    CUdeviceptr plain;
    CUipcMemHandle ipc;
    if (!probe.cu.cuIpcGetMemHandle)
        return true;
    NEED(probe.cu.cuMemAlloc_v2(&plain, 2 * MIB));
    probe_say("'plain_ipc': %d", (int)probe.cu.cuIpcGetMemHandle(&ipc, plain));
    NEED(probe.cu.cuMemFree_v2(plain));
    return true;
}

bool probe_pointers(void)
{
    enum { COUNT = 16 };
    HAVE(cuMemCreate);
    const struct property *property = property_richest();
    CUmemAllocationProp prop = prop_of(property);
    CUmemGenericAllocationHandle handle[COUNT];
    CUdeviceptr address;
    NEED(probe.cu.cuMemAddressReserve(&address, COUNT * probe.granule, 0, 0, 0));
    for (int i = 0; i < COUNT; i++) {
        NEED(probe.cu.cuMemCreate(&handle[i], probe.granule, &prop, 0));
        NEED(probe.cu.cuMemMap(address + (size_t)i * probe.granule, probe.granule, 0, handle[i], 0));
    }
    NEED(probe_access(address, COUNT * probe.granule));
    probe_say("'handles': '%s'", property->name);
    ask_of_second(address, probe.granule, COUNT);
    NEED(probe.cu.cuMemUnmap(address, COUNT * probe.granule));
    for (int i = 0; i < COUNT; i++)
        NEED(probe.cu.cuMemRelease(handle[i]));
    NEED(probe.cu.cuMemAddressFree(address, COUNT * probe.granule));
    return ask_of_plain();
}

bool probe_reservations(void)
{
    enum { RANGES = 10 };
    CUdeviceptr range[RANGES];
    size_t total = 0;
    struct probe_times reserve = {.count = 0}, give = {.count = 0};
    HAVE(cuMemAddressReserve);
    NEED(probe.cu.cuDeviceTotalMem_v2(&total, probe.device));
    size_t bytes = 2 * (total / probe.granule) * probe.granule;
    for (int i = 0; i < RANGES; i++) {
        uint64_t began = probe_ns();
        CUresult result = probe.cu.cuMemAddressReserve(&range[i], bytes, 0, 0, 0);
        if (result != CUDA_SUCCESS) {
            probe_say("'ranges': %d, 'bytes': %zu, 'code': %d", i, bytes, (int)result);
            return false;
        }
        probe_add(&reserve, probe_ns() - began);
    }
    for (int i = 0; i < RANGES; i++) {
        uint64_t began = probe_ns();
        NEED(probe.cu.cuMemAddressFree(range[i * 7 % RANGES], bytes));
        probe_add(&give, probe_ns() - began);
    }
    probe_say("'ranges': %d, 'bytes': %zu, 'code': 0, 'reserve_ns': %llu, 'free_ns': %llu", RANGES, bytes,
        (unsigned long long)probe_at(&reserve, 50), (unsigned long long)probe_at(&give, 50));
    return true;
}

/* From one device to another, neither having access to the other's memory. */
bool probe_peer(void)
{
    int devices = 0;
    struct probe_pages from, to;
    CUcontext other;
    unsigned char byte = 0;
    CUdevice first = probe.device, second;
    NEED(probe.cu.cuDeviceGetCount(&devices));
    if (devices < 2)
        return probe_skip("one device only");
    HAVE(cuMemcpyPeer);
    NEED(probe_pages_make(4, probe.granule, &from));
    NEED(probe.cu.cuMemsetD8_v2(from.address, 0x5a, from.bytes));
    NEED(probe.cu.cuDeviceGet(&second, probe.ordinal ? 0 : 1));
    NEED(probe.cu.cuDevicePrimaryCtxRetain(&other, second));
    NEED(probe.cu.cuCtxSetCurrent(other));
    probe.device = second;
    CUresult made = probe_pages_make(4, probe.granule, &to);
    probe.device = first;
    NEED(made);
    CUresult copied = probe.cu.cuMemcpyPeer(to.address, other, from.address, probe.context, from.bytes);
    if (copied == CUDA_SUCCESS)
        NEED(probe.cu.cuMemcpyDtoH_v2(&byte, to.address + to.bytes - 1, 1));
    probe_say("'code': %d, 'arrived': %s", (int)copied, byte == 0x5a ? "true" : "false");
    probe_pages_end(&to);
    NEED(probe.cu.cuCtxSetCurrent(probe.context));
    probe_pages_end(&from);
    NEED(probe.cu.cuDevicePrimaryCtxRelease_v2(second));
    return true;
}

/* Mappings that a context had when it was reset, and its number after. */
bool probe_reset(void)
{
    struct probe_pages pages;
    unsigned long long before = 0, after = 0;
    size_t free_before = probe_free_bytes();
    CUcontext again;
    HAVE(cuDevicePrimaryCtxReset_v2);
    HAVE(cuMemCreate);
    if (probe.cu.cuCtxGetId)
        NEED(probe.cu.cuCtxGetId(probe.context, &before));
    NEED(probe_pages_make(4, probe.granule, &pages));
    CUresult reset = probe.cu.cuDevicePrimaryCtxReset_v2(probe.device);
    CUresult released = probe.cu.cuDevicePrimaryCtxRelease_v2(probe.device);
    CUresult twice = probe.cu.cuDevicePrimaryCtxRelease_v2(probe.device);
    NEED(probe.cu.cuDevicePrimaryCtxRetain(&again, probe.device));
    NEED(probe.cu.cuCtxSetCurrent(again));
    if (probe.cu.cuCtxGetId)
        NEED(probe.cu.cuCtxGetId(again, &after));
    CUresult access = probe_access(pages.address, pages.bytes);
    CUresult unmap = probe.cu.cuMemUnmap(pages.address, pages.bytes);
    CUresult release = probe.cu.cuMemRelease(pages.handle[0]);
    for (int i = 1; i < pages.count; i++)
        (void)probe.cu.cuMemRelease(pages.handle[i]);
    CUresult range = probe.cu.cuMemAddressFree(pages.address, pages.bytes);
    size_t free_after = probe_free_bytes();
    probe_say("'reset': %d, 'release': %d, 'release_again': %d, 'same_handle': %s, 'other_id': %s, 'access': %d, "
              "'unmap': %d, 'handle': %d, 'range': %d, 'bytes_lost': %lld",
        (int)reset, (int)released, (int)twice, again == probe.context ? "true" : "false",
        before != after ? "true" : "false", (int)access, (int)unmap, (int)release, (int)range,
        (long long)free_before - (long long)free_after);
    return false; /* the next row has a process of its own */
}

/* Mappings of a context that has ended, because the last reference to it was released. */
bool probe_last_release(void)
{
    struct probe_pages pages;
    CUcontext again;
    unsigned flags = 0;
    int active = -1;
    size_t free_before = probe_free_bytes();
    HAVE(cuMemCreate);
    NEED(probe_pages_make(4, probe.granule, &pages));
    NEED(probe.cu.cuDevicePrimaryCtxRelease_v2(probe.device));
    if (probe.cu.cuDevicePrimaryCtxGetState)
        NEED(probe.cu.cuDevicePrimaryCtxGetState(probe.device, &flags, &active));
    CUresult unmap = probe.cu.cuMemUnmap(pages.address, pages.bytes);
    CUresult release = probe.cu.cuMemRelease(pages.handle[0]);
    for (int i = 1; i < pages.count; i++)
        (void)probe.cu.cuMemRelease(pages.handle[i]);
    CUresult range = probe.cu.cuMemAddressFree(pages.address, pages.bytes);
    NEED(probe.cu.cuDevicePrimaryCtxRetain(&again, probe.device));
    NEED(probe.cu.cuCtxSetCurrent(again));
    long long lost = (long long)free_before - (long long)probe_free_bytes();
    probe_say("'active': %d, 'unmap': %d, 'handle': %d, 'range': %d, 'bytes_lost': %lld", active, (int)unmap,
        (int)release, (int)range, lost);
    return false; /* the next row has a process of its own */
}
