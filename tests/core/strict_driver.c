#include "strict_driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strict_books.h"

__attribute__((format(printf, 1, 2))) static CUresult breaks(const char *format, ...)
{
    if (strict.broken++ == 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(strict.first_broken, sizeof strict.first_broken, format, arguments);
        va_end(arguments);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Counts a call; whether it is to fail, and how. */
static bool fails(const char *call, CUresult suits, CUresult *ret)
{
    strict.calls++;
    if (!strict.fail_at || strict.calls < strict.fail_at || (strict.calls > strict.fail_at && !strict.fail_for_ever))
        return false;
    if (!strict.failed)
        strict.failed = call;
    *ret = strict.fail_with == CUDA_SUCCESS ? suits : strict.fail_with;
    return true;
}

static void drop_if_unused(struct handle *handle)
{
    if (!handle->held && !handle->mappings)
        strict.used[handle->device] -= handle->bytes;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    CUresult result = CUDA_SUCCESS;
    (void)hint;
    strict_enter();
    if (fails("reserve", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return strict_leave(result);
    if (bytes == 0 || bytes % strict.granularity || alignment & (alignment - 1) || flags)
        return strict_leave(breaks("reserve of %zu bytes, alignment %zu", bytes, alignment));
    if (strict.ranges == RANGES)
        return strict_leave(CUDA_ERROR_OUT_OF_MEMORY);
    strict.range[strict.ranges++] = (struct range){.address = strict.next_address, .bytes = bytes, .live = true};
    *ret = strict.next_address;
    strict.next_address += bytes + strict.granularity; /* so that running over an end meets something unmapped */
    return strict_leave(CUDA_SUCCESS);
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
    CUresult result;
    strict_enter();
    struct range *range = strict_range_around(address, bytes);
    if (!range || range->address != address || range->bytes != bytes)
        return strict_leave(breaks("free of addresses never reserved: 0x%llx, %zu", address, bytes));
    if (fails("address_free", CUDA_ERROR_INVALID_VALUE, &result)) {
        range->left = true;
        return strict_leave(result);
    }
    uint32_t at = strict_first_mapping(address);
    if (at < strict.mappings && strict.mapping[at].address < address + bytes) {
        if (strict.mapping[at].stuck) {
            range->left = true;
            return strict_leave(CUDA_ERROR_INVALID_VALUE);
        }
        return strict_leave(breaks("free of addresses with a mapping at 0x%llx", strict.mapping[at].address));
    }
    range->live = false;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    CUresult result;
    (void)option;
    strict_enter();
    if (fails("granularity", CUDA_ERROR_INVALID_VALUE, &result))
        return strict_leave(result);
    if (prop->location.type != CU_MEM_LOCATION_TYPE_HOST && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return strict_leave(breaks("granularity of a location of type %d", prop->location.type));
    if (prop->location.id < 0 || prop->location.id >= strict.devices)
        return strict_leave(breaks("granularity of device %d", prop->location.id));
    *ret = strict.granularity;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    CUresult result;
    strict_enter();
    bool host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST;
    int device = host ? STRICT_HOST : prop->location.id;
    if (host && (prop->requestedHandleTypes || prop->allocFlags.gpuDirectRDMACapable || !strict.host_total))
        return strict_leave(breaks("create of a page of the host's that it can't make"));
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || (!host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
        device < 0 || (!host && device >= strict.devices) || flags)
        return strict_leave(breaks("create with bad properties, device %d", device));
    if (bytes == 0 || bytes % strict.granularity)
        return strict_leave(breaks("create of %zu bytes", bytes));
    if (fails("create", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return strict_leave(result);
    if (bytes > (host ? strict.host_total : strict.total) - strict.used[device])
        return strict_leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (strict.handles == HANDLES) {
        fprintf(stderr, "strict_driver: too many handles\n");
        abort();
    }
    strict.used[device] += bytes;
    strict.handle[strict.handles++] = (struct handle){.bytes = bytes, .device = device, .held = true};
    *ret = strict.handles;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult release(CUmemGenericAllocationHandle id)
{
    CUresult result;
    strict_enter();
    struct handle *handle = strict_handle_of(id);
    if (!handle || !handle->held)
        return strict_leave(breaks("release of handle %llu, which is not held", id));
    handle->left = fails("release", CUDA_ERROR_INVALID_VALUE, &result);
    if (handle->left)
        return strict_leave(result);
    handle->held = false;
    drop_if_unused(handle);
    return strict_leave(CUDA_SUCCESS);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
    unsigned long long flags)
{
    CUresult result;
    strict_enter();
    struct handle *handle = strict_handle_of(id);
    if (!handle || !handle->held || handle->bytes != bytes || offset || flags)
        return strict_leave(breaks("map of %zu bytes of handle %llu", bytes, id));
    if (address % strict.granularity || !strict_range_around(address, bytes))
        return strict_leave(breaks("map outside of what is reserved: 0x%llx", address));
    if (fails("map", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return strict_leave(result);
    uint32_t at = strict_first_mapping(address);
    if (at < strict.mappings && strict.mapping[at].address < address + bytes)
        return strict_leave(breaks("map over what is mapped: 0x%llx", address));
    if (strict.mappings == MAPPINGS)
        return strict_leave(CUDA_ERROR_OUT_OF_MEMORY);
    memmove(&strict.mapping[at + 1], &strict.mapping[at], (strict.mappings - at) * sizeof *strict.mapping);
    strict.mapping[at] = (struct mapping){.address = address, .bytes = bytes, .handle = id};
    strict.mappings++;
    handle->mappings++;
    return strict_leave(CUDA_SUCCESS);
}

/* The whole mappings that make up [address, address + bytes); 0 if they don't. */
static uint32_t whole_mappings(CUdeviceptr address, size_t bytes, uint32_t *ret_first)
{
    uint32_t at = strict_first_mapping(address), first = at;
    CUdeviceptr next = address;
    for (; at < strict.mappings && strict.mapping[at].address == next && next < address + bytes; at++)
        next += strict.mapping[at].bytes;
    *ret_first = first;
    return next == address + bytes ? at - first : 0;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    CUresult result;
    uint32_t first;
    strict_enter();
    uint32_t count = whole_mappings(address, bytes, &first);
    if (!count)
        return strict_leave(breaks("unmap of what is not whole mappings: 0x%llx, %zu", address, bytes));
    if (fails("unmap", CUDA_ERROR_INVALID_VALUE, &result)) {
        for (uint32_t i = first; i < first + count; i++)
            strict.mapping[i].stuck = true;
        return strict_leave(result);
    }
    for (uint32_t i = first; i < first + count; i++) {
        struct handle *handle = strict_handle_of(strict.mapping[i].handle);
        handle->mappings--;
        drop_if_unused(handle);
    }
    memmove(&strict.mapping[first], &strict.mapping[first + count],
        (strict.mappings - first - count) * sizeof *strict.mapping);
    strict.mappings -= count;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    CUresult result;
    uint32_t first;
    uint64_t bits = 0;
    strict_enter();
    uint32_t mappings = whole_mappings(address, bytes, &first);
    if (!mappings || count == 0)
        return strict_leave(breaks("access rights of what is not whole mappings: 0x%llx, %zu", address, bytes));
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id < 0 ||
            access[i].location.id >= strict.devices)
            return strict_leave(breaks("access rights for device %d", access[i].location.id));
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            bits |= UINT64_C(1) << access[i].location.id;
    }
    if (fails("set_access", CUDA_ERROR_INVALID_VALUE, &result))
        return strict_leave(result);
    for (uint32_t i = first; i < first + mappings; i++)
        strict.mapping[i].access |= bits;
    return strict_leave(CUDA_SUCCESS);
}

/* Plain memory is a range with a handle of its own that is never mapped. */
static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    CUresult result;
    strict_enter();
    if (fails("mem_alloc", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return strict_leave(result);
    if (bytes > strict.total - strict.used[strict_current] || strict.handles == HANDLES || strict.ranges == RANGES)
        return strict_leave(CUDA_ERROR_OUT_OF_MEMORY);
    strict.used[strict_current] += bytes;
    strict.handle[strict.handles++] = (struct handle){.bytes = bytes, .device = strict_current, .held = true};
    for (uint32_t i = 0; i < strict.ranges; i++) {
        if (strict.range[i].plain && !strict.range[i].live &&
            strict.range[i].bytes == bytes) { /* the address comes again */
            strict.range[i].live = true;
            strict.range[i].plain = strict.handles;
            *ret = strict.range[i].address;
            return strict_leave(CUDA_SUCCESS);
        }
    }
    strict.range[strict.ranges++] =
        (struct range){.address = strict.next_address, .bytes = bytes, .live = true, .plain = strict.handles};
    *ret = strict.next_address;
    strict.next_address += (bytes + 2 * strict.granularity - 1) / strict.granularity * strict.granularity;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult mem_free(CUdeviceptr address)
{
    CUresult result;
    strict_enter();
    struct range *range = strict_range_around(address, 1);
    if (!range || range->address != address || !range->plain)
        return strict_leave(breaks("free of memory never allocated: 0x%llx", address));
    if (fails("mem_free", CUDA_ERROR_INVALID_VALUE, &result)) {
        range->left = strict.handle[range->plain - 1].left = true;
        return strict_leave(result);
    }
    range->live = false;
    strict.handle[range->plain - 1].held = false;
    drop_if_unused(&strict.handle[range->plain - 1]);
    return strict_leave(CUDA_SUCCESS);
}

static CUresult mem_info(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result;
    strict_enter();
    if (fails("mem_info", CUDA_ERROR_INVALID_VALUE, &result))
        return strict_leave(result);
    *free_bytes = strict.total - strict.used[strict_current];
    *total_bytes = strict.total;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult device_total(size_t *ret, CUdevice device)
{
    CUresult result;
    strict_enter();
    if (fails("device_total", CUDA_ERROR_INVALID_VALUE, &result))
        return strict_leave(result);
    if (device < 0 || device >= strict.devices)
        return strict_leave(CUDA_ERROR_INVALID_DEVICE);
    *ret = strict.total;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result;
    strict_enter();
    if (fails("device_attribute", CUDA_ERROR_INVALID_VALUE, &result))
        return strict_leave(result);
    (void)device;
    *ret = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
           (attribute == CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && strict.host_total);
    return strict_leave(CUDA_SUCCESS);
}

static CUresult ctx_get_current(CUcontext *ret)
{
    *ret = NULL;
    return CUDA_SUCCESS;
}

static CUresult ctx_synchronize(void)
{
    CUresult result;
    strict_enter();
    if (fails("ctx_synchronize", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return strict_leave(result);
    strict.complete = strict.recordings;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    CUresult result;
    (void)flags;
    strict_enter();
    if (fails("event_create", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return strict_leave(result);
    uint32_t i = 0;
    while (i < strict.events && strict.event[i].live)
        i++;
    if (i == EVENTS)
        return strict_leave(CUDA_ERROR_OUT_OF_MEMORY);
    strict.event[i] = (struct event){.live = true};
    strict.events = i == strict.events ? i + 1 : strict.events;
    *ret = (CUevent)(uintptr_t)(i + 1);
    return strict_leave(CUDA_SUCCESS);
}

static struct event *event_of(CUevent event)
{
    uintptr_t i = (uintptr_t)event;
    return i > 0 && i <= strict.events && strict.event[i - 1].live ? &strict.event[i - 1] : NULL;
}

static CUresult event_destroy(CUevent id)
{
    CUresult result;
    strict_enter();
    struct event *event = event_of(id);
    if (!event)
        return strict_leave(breaks("destruction of an event that does not exist"));
    if (fails("event_destroy", CUDA_ERROR_INVALID_VALUE, &result)) {
        event->left = true;
        return strict_leave(result);
    }
    event->live = false;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult event_query(CUevent id)
{
    CUresult result;
    strict_enter();
    const struct event *event = event_of(id);
    if (!event)
        return strict_leave(breaks("query of an event that does not exist"));
    if (fails("event_query", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return strict_leave(result);
    return strict_leave(event->recording <= strict.complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

static CUresult event_synchronize(CUevent id)
{
    CUresult result;
    strict_enter();
    const struct event *event = event_of(id);
    if (!event)
        return strict_leave(breaks("wait for an event that does not exist"));
    if (fails("event_synchronize", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return strict_leave(result);
    if (strict.complete < event->recording)
        strict.complete = event->recording;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult ctx_record_event(CUcontext context, CUevent id)
{
    CUresult result;
    (void)context;
    strict_enter();
    struct event *event = event_of(id);
    if (!event)
        return strict_leave(breaks("recording of an event that does not exist"));
    if (fails("ctx_record_event", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return strict_leave(result);
    event->recording = ++strict.recordings;
    return strict_leave(CUDA_SUCCESS);
}

static CUresult event_record(CUevent id, CUstream stream)
{
    CUresult result;
    (void)stream;
    strict_enter();
    struct event *event = event_of(id);
    if (!event)
        return strict_leave(breaks("recording of an event that does not exist"));
    if (fails("event_record", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return strict_leave(result);
    event->recording = ++strict.recordings;
    return strict_leave(CUDA_SUCCESS);
}

/* The context that is current only matters to whom it is pushed for. */
static CUresult ctx_push(CUcontext context)
{
    (void)context;
    return CUDA_SUCCESS;
}

static CUresult ctx_pop(CUcontext *ret)
{
    *ret = NULL;
    return CUDA_SUCCESS;
}

const struct sg_driver strict_driver = {
    .ctx_push = ctx_push,
    .ctx_pop = ctx_pop,
    .event_record = event_record,
    .ctx_get_current = ctx_get_current,
    .ctx_synchronize = ctx_synchronize,
    .device_attribute = device_attribute,
    .device_total = device_total,
    .mem_info = mem_info,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .address_reserve = address_reserve,
    .address_free = address_free,
    .granularity = granularity,
    .create = create,
    .release = release,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .ctx_record_event = ctx_record_event,
};
