#include "strict_driver.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lock.h"

static _Thread_local int current;

enum { HANDLES = 1 << 16, MAPPINGS = 1 << 16, RANGES = 1 << 11, EVENTS = 1 << 14 };

static struct {
    pthread_mutex_t mutex;
    int devices;
    uint64_t total, granularity, next_address;
    struct handle {
        uint64_t bytes;
        int device;
        uint32_t mappings;
        bool held, left; /* not released; a release was made to fail */
    } handle[HANDLES];
    uint32_t handles;
    struct mapping { /* sorted by address */
        CUdeviceptr address;
        uint64_t bytes;
        CUmemGenericAllocationHandle handle;
        uint64_t access; /* bit a device */
        bool stuck;
    } mapping[MAPPINGS];
    uint32_t mappings;
    struct range {
        CUdeviceptr address;
        uint64_t bytes;
        bool live, left;
        uint32_t plain; /* handle of plain memory, 0 of a reservation */
    } range[RANGES];
    uint32_t ranges;
    struct event {
        uint64_t recording;
        bool live, left;
    } event[EVENTS];
    uint32_t events;
    uint64_t recordings, complete;
    uint64_t used[STRICT_DEVICES];
    uint64_t calls, fail_at;
    bool fail_for_ever;
    CUresult fail_with;
    const char *failed;
    unsigned broken;
    char first_broken[200];
} the = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void enter(void)
{
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
    pthread_mutex_lock(&the.mutex);
}

static CUresult leave(CUresult result)
{
    pthread_mutex_unlock(&the.mutex);
    return result;
}

__attribute__((format(printf, 1, 2))) static CUresult breaks(const char *format, ...)
{
    if (the.broken++ == 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(the.first_broken, sizeof the.first_broken, format, arguments);
        va_end(arguments);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Counts a call; whether it is to fail, and how. */
static bool fails(const char *call, CUresult suits, CUresult *ret)
{
    the.calls++;
    if (!the.fail_at || the.calls < the.fail_at || (the.calls > the.fail_at && !the.fail_for_ever))
        return false;
    if (!the.failed)
        the.failed = call;
    *ret = the.fail_with == CUDA_SUCCESS ? suits : the.fail_with;
    return true;
}

static uint32_t first_at_or_after(CUdeviceptr address)
{
    uint32_t low = 0, high = the.mappings;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (the.mapping[middle].address + the.mapping[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low; /* first that ends after `address` */
}

static struct range *range_around(CUdeviceptr address, uint64_t bytes)
{
    for (uint32_t i = 0; i < the.ranges; i++)
        if (the.range[i].live && address >= the.range[i].address &&
            address + bytes <= the.range[i].address + the.range[i].bytes)
            return &the.range[i];
    return NULL;
}

static struct handle *handle_of(CUmemGenericAllocationHandle handle)
{
    return handle > 0 && handle <= the.handles ? &the.handle[handle - 1] : NULL;
}

static void drop_if_unused(struct handle *handle)
{
    if (!handle->held && !handle->mappings)
        the.used[handle->device] -= handle->bytes;
}

static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    CUresult result = CUDA_SUCCESS;
    (void)hint;
    enter();
    if (fails("reserve", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return leave(result);
    if (bytes == 0 || bytes % the.granularity || alignment & (alignment - 1) || flags)
        return leave(breaks("reserve of %zu bytes, alignment %zu", bytes, alignment));
    if (the.ranges == RANGES)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    the.range[the.ranges++] = (struct range){.address = the.next_address, .bytes = bytes, .live = true};
    *ret = the.next_address;
    the.next_address += bytes + the.granularity; /* so that running over an end meets something unmapped */
    return leave(CUDA_SUCCESS);
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
    CUresult result;
    enter();
    struct range *range = range_around(address, bytes);
    if (!range || range->address != address || range->bytes != bytes)
        return leave(breaks("free of addresses never reserved: 0x%llx, %zu", address, bytes));
    if (fails("address_free", CUDA_ERROR_INVALID_VALUE, &result)) {
        range->left = true;
        return leave(result);
    }
    uint32_t at = first_at_or_after(address);
    if (at < the.mappings && the.mapping[at].address < address + bytes) {
        if (the.mapping[at].stuck) {
            range->left = true;
            return leave(CUDA_ERROR_INVALID_VALUE);
        }
        return leave(breaks("free of addresses with a mapping at 0x%llx", the.mapping[at].address));
    }
    range->live = false;
    return leave(CUDA_SUCCESS);
}

static CUresult granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    CUresult result;
    (void)option;
    enter();
    if (fails("granularity", CUDA_ERROR_INVALID_VALUE, &result))
        return leave(result);
    if (prop->location.id < 0 || prop->location.id >= the.devices)
        return leave(breaks("granularity of device %d", prop->location.id));
    *ret = the.granularity;
    return leave(CUDA_SUCCESS);
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    CUresult result;
    enter();
    int device = prop->location.id;
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        device < 0 || device >= the.devices || flags)
        return leave(breaks("create with bad properties, device %d", device));
    if (bytes == 0 || bytes % the.granularity)
        return leave(breaks("create of %zu bytes", bytes));
    if (fails("create", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return leave(result);
    if (bytes > the.total - the.used[device])
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (the.handles == HANDLES) {
        fprintf(stderr, "strict_driver: too many handles\n");
        abort();
    }
    the.used[device] += bytes;
    the.handle[the.handles++] = (struct handle){.bytes = bytes, .device = device, .held = true};
    *ret = the.handles;
    return leave(CUDA_SUCCESS);
}

static CUresult release(CUmemGenericAllocationHandle id)
{
    CUresult result;
    enter();
    struct handle *handle = handle_of(id);
    if (!handle || !handle->held)
        return leave(breaks("release of handle %llu, which is not held", id));
    handle->left = fails("release", CUDA_ERROR_INVALID_VALUE, &result);
    if (handle->left)
        return leave(result);
    handle->held = false;
    drop_if_unused(handle);
    return leave(CUDA_SUCCESS);
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle id,
    unsigned long long flags)
{
    CUresult result;
    enter();
    struct handle *handle = handle_of(id);
    if (!handle || !handle->held || handle->bytes != bytes || offset || flags)
        return leave(breaks("map of %zu bytes of handle %llu", bytes, id));
    if (address % the.granularity || !range_around(address, bytes))
        return leave(breaks("map outside of what is reserved: 0x%llx", address));
    if (fails("map", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return leave(result);
    uint32_t at = first_at_or_after(address);
    if (at < the.mappings && the.mapping[at].address < address + bytes)
        return leave(breaks("map over what is mapped: 0x%llx", address));
    if (the.mappings == MAPPINGS)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    memmove(&the.mapping[at + 1], &the.mapping[at], (the.mappings - at) * sizeof *the.mapping);
    the.mapping[at] = (struct mapping){.address = address, .bytes = bytes, .handle = id};
    the.mappings++;
    handle->mappings++;
    return leave(CUDA_SUCCESS);
}

/* The whole mappings that make up [address, address + bytes); 0 if they don't. */
static uint32_t whole_mappings(CUdeviceptr address, size_t bytes, uint32_t *ret_first)
{
    uint32_t at = first_at_or_after(address), first = at;
    CUdeviceptr next = address;
    for (; at < the.mappings && the.mapping[at].address == next && next < address + bytes; at++)
        next += the.mapping[at].bytes;
    *ret_first = first;
    return next == address + bytes ? at - first : 0;
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    CUresult result;
    uint32_t first;
    enter();
    uint32_t count = whole_mappings(address, bytes, &first);
    if (!count)
        return leave(breaks("unmap of what is not whole mappings: 0x%llx, %zu", address, bytes));
    if (fails("unmap", CUDA_ERROR_INVALID_VALUE, &result)) {
        for (uint32_t i = first; i < first + count; i++)
            the.mapping[i].stuck = true;
        return leave(result);
    }
    for (uint32_t i = first; i < first + count; i++) {
        struct handle *handle = handle_of(the.mapping[i].handle);
        handle->mappings--;
        drop_if_unused(handle);
    }
    memmove(&the.mapping[first], &the.mapping[first + count], (the.mappings - first - count) * sizeof *the.mapping);
    the.mappings -= count;
    return leave(CUDA_SUCCESS);
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    CUresult result;
    uint32_t first;
    uint64_t bits = 0;
    enter();
    uint32_t mappings = whole_mappings(address, bytes, &first);
    if (!mappings || count == 0)
        return leave(breaks("access rights of what is not whole mappings: 0x%llx, %zu", address, bytes));
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id < 0 ||
            access[i].location.id >= the.devices)
            return leave(breaks("access rights for device %d", access[i].location.id));
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            bits |= UINT64_C(1) << access[i].location.id;
    }
    if (fails("set_access", CUDA_ERROR_INVALID_VALUE, &result))
        return leave(result);
    for (uint32_t i = first; i < first + mappings; i++)
        the.mapping[i].access |= bits;
    return leave(CUDA_SUCCESS);
}

/* Plain memory is a range with a handle of its own that is never mapped. */
static CUresult mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    CUresult result;
    enter();
    if (fails("mem_alloc", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return leave(result);
    if (bytes > the.total - the.used[current] || the.handles == HANDLES || the.ranges == RANGES)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    the.used[current] += bytes;
    the.handle[the.handles++] = (struct handle){.bytes = bytes, .device = current, .held = true};
    for (uint32_t i = 0; i < the.ranges; i++) {
        if (the.range[i].plain && !the.range[i].live && the.range[i].bytes == bytes) { /* the address comes again */
            the.range[i].live = true;
            the.range[i].plain = the.handles;
            *ret = the.range[i].address;
            return leave(CUDA_SUCCESS);
        }
    }
    the.range[the.ranges++] =
        (struct range){.address = the.next_address, .bytes = bytes, .live = true, .plain = the.handles};
    *ret = the.next_address;
    the.next_address += (bytes + 2 * the.granularity - 1) / the.granularity * the.granularity;
    return leave(CUDA_SUCCESS);
}

static CUresult mem_free(CUdeviceptr address)
{
    CUresult result;
    enter();
    struct range *range = range_around(address, 1);
    if (!range || range->address != address || !range->plain)
        return leave(breaks("free of memory never allocated: 0x%llx", address));
    if (fails("mem_free", CUDA_ERROR_INVALID_VALUE, &result)) {
        range->left = the.handle[range->plain - 1].left = true;
        return leave(result);
    }
    range->live = false;
    the.handle[range->plain - 1].held = false;
    drop_if_unused(&the.handle[range->plain - 1]);
    return leave(CUDA_SUCCESS);
}

static CUresult mem_info(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result;
    enter();
    if (fails("mem_info", CUDA_ERROR_INVALID_VALUE, &result))
        return leave(result);
    *free_bytes = the.total - the.used[current];
    *total_bytes = the.total;
    return leave(CUDA_SUCCESS);
}

static CUresult device_total(size_t *ret, CUdevice device)
{
    CUresult result;
    enter();
    if (fails("device_total", CUDA_ERROR_INVALID_VALUE, &result))
        return leave(result);
    if (device < 0 || device >= the.devices)
        return leave(CUDA_ERROR_INVALID_DEVICE);
    *ret = the.total;
    return leave(CUDA_SUCCESS);
}

static CUresult device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result;
    enter();
    if (fails("device_attribute", CUDA_ERROR_INVALID_VALUE, &result))
        return leave(result);
    (void)device;
    *ret = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return leave(CUDA_SUCCESS);
}

static CUresult ctx_get_current(CUcontext *ret)
{
    *ret = NULL;
    return CUDA_SUCCESS;
}

static CUresult ctx_synchronize(void)
{
    CUresult result;
    enter();
    if (fails("ctx_synchronize", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return leave(result);
    the.complete = the.recordings;
    return leave(CUDA_SUCCESS);
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    CUresult result;
    (void)flags;
    enter();
    if (fails("event_create", CUDA_ERROR_OUT_OF_MEMORY, &result))
        return leave(result);
    uint32_t i = 0;
    while (i < the.events && the.event[i].live)
        i++;
    if (i == EVENTS)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    the.event[i] = (struct event){.live = true};
    the.events = i == the.events ? i + 1 : the.events;
    *ret = (CUevent)(uintptr_t)(i + 1);
    return leave(CUDA_SUCCESS);
}

static struct event *event_of(CUevent event)
{
    uintptr_t i = (uintptr_t)event;
    return i > 0 && i <= the.events && the.event[i - 1].live ? &the.event[i - 1] : NULL;
}

static CUresult event_destroy(CUevent id)
{
    CUresult result;
    enter();
    struct event *event = event_of(id);
    if (!event)
        return leave(breaks("destruction of an event that does not exist"));
    if (fails("event_destroy", CUDA_ERROR_INVALID_VALUE, &result)) {
        event->left = true;
        return leave(result);
    }
    event->live = false;
    return leave(CUDA_SUCCESS);
}

static CUresult event_query(CUevent id)
{
    CUresult result;
    enter();
    const struct event *event = event_of(id);
    if (!event)
        return leave(breaks("query of an event that does not exist"));
    if (fails("event_query", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return leave(result);
    return leave(event->recording <= the.complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

static CUresult event_synchronize(CUevent id)
{
    CUresult result;
    enter();
    const struct event *event = event_of(id);
    if (!event)
        return leave(breaks("wait for an event that does not exist"));
    if (fails("event_synchronize", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return leave(result);
    if (the.complete < event->recording)
        the.complete = event->recording;
    return leave(CUDA_SUCCESS);
}

static CUresult ctx_record_event(CUcontext context, CUevent id)
{
    CUresult result;
    (void)context;
    enter();
    struct event *event = event_of(id);
    if (!event)
        return leave(breaks("recording of an event that does not exist"));
    if (fails("ctx_record_event", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return leave(result);
    event->recording = ++the.recordings;
    return leave(CUDA_SUCCESS);
}

static CUresult event_record(CUevent id, CUstream stream)
{
    CUresult result;
    (void)stream;
    enter();
    struct event *event = event_of(id);
    if (!event)
        return leave(breaks("recording of an event that does not exist"));
    if (fails("event_record", CUDA_ERROR_ILLEGAL_ADDRESS, &result))
        return leave(result);
    event->recording = ++the.recordings;
    return leave(CUDA_SUCCESS);
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

void strict_reset(int devices, uint64_t total, uint64_t granule)
{
    enter();
    the.devices = devices;
    the.total = total;
    the.granularity = granule;
    the.next_address = UINT64_C(0x7f0000000000);
    the.handles = the.mappings = the.ranges = the.events = 0;
    the.recordings = the.complete = 0;
    memset(the.used, 0, sizeof the.used);
    the.calls = the.fail_at = 0;
    the.failed = NULL;
    the.broken = 0;
    leave(CUDA_SUCCESS);
}

void strict_use(int device)
{
    current = device;
}

void strict_fail_at(uint64_t number, bool for_ever, CUresult result)
{
    enter();
    the.calls = 0;
    the.fail_at = number;
    the.fail_for_ever = for_ever;
    the.fail_with = result;
    the.failed = NULL;
    leave(CUDA_SUCCESS);
}

bool strict_failed(const char **ret_call)
{
    enter();
    if (ret_call)
        *ret_call = the.failed;
    bool failed = the.failed != NULL;
    leave(CUDA_SUCCESS);
    return failed;
}

unsigned strict_broken(const char **ret)
{
    enter();
    unsigned broken = the.broken;
    if (ret)
        *ret = the.first_broken;
    leave(CUDA_SUCCESS);
    return broken;
}

uint64_t strict_used(int device)
{
    enter();
    uint64_t used = the.used[device];
    leave(CUDA_SUCCESS);
    return used;
}

uint64_t strict_stuck(int device)
{
    uint64_t bytes = 0;
    enter();
    for (uint32_t i = 0; i < the.mappings; i++)
        if (the.mapping[i].stuck && handle_of(the.mapping[i].handle)->device == device)
            bytes += the.mapping[i].bytes;
    for (uint32_t i = 0; i < the.handles; i++)
        if (the.handle[i].held && the.handle[i].left && !the.handle[i].mappings && the.handle[i].device == device)
            bytes += the.handle[i].bytes;
    leave(CUDA_SUCCESS);
    return bytes;
}

bool strict_backing(CUdeviceptr address, size_t bytes, int device, uint64_t *ret)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    enter();
    CUdeviceptr next = address;
    const struct range *range = range_around(address, bytes);
    if (range && range->plain) {
        bool right = handle_of(range->plain)->device == device;
        hash ^= range->plain;
        next = right ? address + bytes : address;
    }
    for (uint32_t at = first_at_or_after(address); next < address + bytes; at++) {
        if (at >= the.mappings || the.mapping[at].address > next || !(the.mapping[at].access >> device & 1)) {
            leave(CUDA_SUCCESS);
            return false;
        }
        hash = (hash ^ the.mapping[at].handle) * UINT64_C(0x100000001b3);
        next = the.mapping[at].address + the.mapping[at].bytes;
    }
    leave(CUDA_SUCCESS);
    *ret = hash;
    return true;
}

/* The part of a mapping that lies in a range, as offsets into its memory. */
static void part_in(const struct mapping *mapping, CUdeviceptr address, size_t bytes, uint64_t *ret_begin,
    uint64_t *ret_end)
{
    CUdeviceptr begin = address > mapping->address ? address : mapping->address,
                end = mapping->address + mapping->bytes;
    *ret_begin = begin - mapping->address;
    *ret_end = (address + bytes < end ? address + bytes : end) - mapping->address;
}

bool strict_share(CUdeviceptr one, size_t one_bytes, CUdeviceptr other, size_t other_bytes)
{
    bool share = one < other + other_bytes && other < one + one_bytes;
    enter();
    for (uint32_t i = first_at_or_after(one); !share && i < the.mappings && the.mapping[i].address < one + one_bytes;
         i++) {
        const struct mapping *a = &the.mapping[i];
        if (handle_of(a->handle)->mappings < 2)
            continue; /* at one address: that was looked at */
        for (uint32_t k = first_at_or_after(other);
             !share && k < the.mappings && the.mapping[k].address < other + other_bytes; k++) {
            uint64_t a_begin, a_end, b_begin, b_end;
            part_in(a, one, one_bytes, &a_begin, &a_end);
            part_in(&the.mapping[k], other, other_bytes, &b_begin, &b_end);
            share = the.mapping[k].handle == a->handle && a_begin < b_end && b_begin < a_end;
        }
    }
    leave(CUDA_SUCCESS);
    return share;
}

CUmemGenericAllocationHandle strict_mapped(CUdeviceptr address, size_t bytes)
{
    enter();
    uint32_t at = first_at_or_after(address);
    bool exact = at < the.mappings && the.mapping[at].address == address && the.mapping[at].bytes == bytes;
    CUmemGenericAllocationHandle handle = exact ? the.mapping[at].handle : 0;
    leave(CUDA_SUCCESS);
    return handle;
}

void strict_complete(uint64_t count)
{
    enter();
    the.complete = the.complete + count < the.recordings ? the.complete + count : the.recordings;
    leave(CUDA_SUCCESS);
}

unsigned strict_leaks(void)
{
    unsigned leaks = 0;
    enter();
    for (uint32_t i = 0; i < the.handles; i++)
        leaks += the.handle[i].held && !the.handle[i].left;
    for (uint32_t i = 0; i < the.mappings; i++)
        leaks += !the.mapping[i].stuck;
    for (uint32_t i = 0; i < the.ranges; i++)
        leaks += the.range[i].live && !the.range[i].left;
    for (uint32_t i = 0; i < the.events; i++)
        leaks += the.event[i].live && !the.event[i].left;
    leave(CUDA_SUCCESS);
    return leaks;
}
