#include "ledger_driver.h"

#include <stddef.h>
#include <stdlib.h>

static _Thread_local struct sg_ledger *current;
static _Thread_local int ordinal;

void sg_ledger_init(struct sg_ledger *card, uint64_t total_bytes, uint64_t granularity)
{
    *card = (struct sg_ledger){.total_bytes = total_bytes, .granularity = granularity,
        .next_address = SG_LEDGER_BASE};
}

void sg_ledger_fini(struct sg_ledger *card)
{
    for (uint64_t i = 0; i < card->events; i++)
        free(card->event[i].clock);
    free(card->event);
    free(card->plain);
    card->event = NULL;
    card->plain = NULL;
}

void sg_ledger_use(struct sg_ledger *card)
{
    current = card;
    ordinal = 0;
}

void sg_ledger_use_device(int device)
{
    ordinal = device;
}

/* Bytes of a device: its own, or the card's. */
static uint64_t ledger_total_of(const struct sg_ledger_gpu *device)
{
    return device->total_bytes ? device->total_bytes : current->total_bytes;
}

/* Bytes of a device that nobody has. */
static uint64_t ledger_unused(const struct sg_ledger_gpu *device)
{
    uint64_t used = device->used_bytes + device->outside_bytes, total = ledger_total_of(device);
    return used < total ? total - used : 0;
}

/* Takes bytes of a device, if it has as many unused. */
static CUresult ledger_take(struct sg_ledger_gpu *device, uint64_t bytes)
{
    if (bytes > ledger_unused(device) && !current->refuses_nothing)
        return CUDA_ERROR_OUT_OF_MEMORY;
    device->used_bytes += bytes;
    if (device->used_bytes > device->peak_bytes)
        device->peak_bytes = device->used_bytes;
    return CUDA_SUCCESS;
}

/* Addresses are never given out twice, so a use of a freed one cannot look right by chance. */
static CUresult ledger_address_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    (void)alignment;
    (void)hint;
    (void)flags;
    *ret = current->next_address;
    current->next_address += bytes;
    return CUDA_SUCCESS;
}

static CUresult ledger_address_free(CUdeviceptr address, size_t bytes)
{
    (void)address;
    (void)bytes;
    return CUDA_SUCCESS;
}

static CUresult ledger_granularity(size_t *ret, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *ret = current->granularity;
    return CUDA_SUCCESS;
}

/* A handle is its page's size, a multiple of 512, and the device: all that the books need. */
/* Bit of a handle: the page is in the host's memory. */
#define ON_HOST (UINT64_C(1) << 62)

/* The host has as much memory as anybody asks for. */
static void ledger_take_of_host(uint64_t bytes)
{
    current->host_used_bytes += bytes;
    if (current->host_used_bytes > current->host_peak_bytes)
        current->host_peak_bytes = current->host_used_bytes;
}

static CUresult ledger_create(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    (void)flags;
    if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_HOST) {
        ledger_take_of_host(bytes);
        *ret = bytes | ON_HOST;
        return CUDA_SUCCESS;
    }
    uint32_t device = prop ? (uint32_t)prop->location.id % SG_CARD_DEVICES : 0;
    CUresult result = ledger_take(&current->device[device], bytes);
    if (result == CUDA_SUCCESS)
        *ret = bytes | device;
    return result;
}

static CUresult ledger_release(CUmemGenericAllocationHandle handle)
{
    if (handle & ON_HOST)
        current->host_used_bytes -= handle & ~ON_HOST;
    else
        current->device[handle % SG_CARD_DEVICES].used_bytes -= handle / SG_CARD_DEVICES * SG_CARD_DEVICES;
    return CUDA_SUCCESS;
}

/* A mapping is no more than the question if the sizes agree. */
static CUresult ledger_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags)
{
    (void)address;
    (void)offset;
    (void)flags;
    return (handle & ~ON_HOST) / SG_CARD_DEVICES * SG_CARD_DEVICES == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult ledger_unmap(CUdeviceptr address, size_t bytes)
{
    (void)address;
    (void)bytes;
    return CUDA_SUCCESS;
}

static CUresult ledger_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    (void)address;
    (void)bytes;
    (void)access;
    (void)count;
    return CUDA_SUCCESS;
}

/* Plain memory: addresses carry their size in the book of the card. */
static CUresult ledger_mem_alloc(CUdeviceptr *ret, size_t bytes)
{
    if (current->plain_count == current->plain_room) {
        uint64_t room = current->plain_room ? 2 * current->plain_room : 256;
        struct sg_ledger_plain *plain = realloc(current->plain, room * sizeof *plain);
        if (!plain)
            return CUDA_ERROR_OUT_OF_MEMORY;
        current->plain = plain;
        current->plain_room = room;
    }
    CUresult result = ledger_take(&current->device[ordinal], bytes);
    if (result == CUDA_SUCCESS) {
        *ret = current->next_address;
        current->next_address += (bytes + current->granularity - 1) / current->granularity * current->granularity;
        current->plain[current->plain_count++] = (struct sg_ledger_plain){*ret, bytes, (uint32_t)ordinal};
    }
    return result;
}

static CUresult ledger_mem_free(CUdeviceptr address)
{
    /* A pass over all: plain allocations are few, fixed segments of a replay. */
    for (uint64_t i = 0; i < current->plain_count; i++) {
        if (current->plain[i].address == address) {
            current->device[current->plain[i].device].used_bytes -= current->plain[i].bytes;
            current->plain[i] = current->plain[--current->plain_count];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult ledger_mem_info(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = ledger_unused(&current->device[ordinal]);
    *total_bytes = ledger_total_of(&current->device[ordinal]);
    return CUDA_SUCCESS;
}

static CUresult ledger_device_total(size_t *ret, CUdevice device)
{
    *ret = ledger_total_of(&current->device[(uint32_t)device % SG_CARD_DEVICES]);
    return CUDA_SUCCESS;
}

static CUresult ledger_device_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    /* Nothing else is offered: pages are neither exportable nor reachable by network cards. */
    *ret = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
           attribute == CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return CUDA_SUCCESS;
}

static CUresult ledger_ctx_get_current(CUcontext *ret)
{
    *ret = NULL; /* no context is current, and no call here needs one */
    return CUDA_SUCCESS;
}

/* The host waits for a clock, and the wait is counted if there was work to wait for. */
static void ledger_finish(const struct sg_ledger_clock *clock)
{
    if (!sg_lag_queue_is_complete(current->queue, clock))
        current->host_waits++;
    sg_lag_queue_finish(current->queue, clock);
}

/* Waits for all streams of the present device; without a queue there is nothing to wait for. */
static CUresult ledger_ctx_synchronize(void)
{
    if (current->queue) {
        struct sg_ledger_clock clock;
        sg_lag_queue_record_all(current->queue, ordinal, &clock);
        ledger_finish(&clock);
    }
    return CUDA_SUCCESS;
}

/* The entry of an event, whose handle is its number, from 1. */
static struct sg_ledger_event *ledger_event_of(CUevent event)
{
    return &current->event[(uintptr_t)event - 1];
}

/* A number for an event, one that was destroyed if there is any. 0: no host memory. */
static uint64_t ledger_new_event(void)
{
    uint64_t number = current->unused_event;
    if (number) {
        current->unused_event = current->event[number - 1].next_unused;
        return number;
    }
    if (current->events == current->events_room) {
        uint64_t room = current->events_room ? 2 * current->events_room : 64;
        struct sg_ledger_event *event = realloc(current->event, room * sizeof *event);
        if (!event)
            return 0;
        current->event = event;
        current->events_room = room;
    }
    current->event[current->events] = (struct sg_ledger_event){0};
    return ++current->events;
}

static CUresult ledger_event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    uint64_t number = ledger_new_event();
    if (!number)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* A number that is used again keeps its clock, which has 1 KiB. */
    struct sg_ledger_event *entry = &current->event[number - 1];
    entry->recording = 0;
    if (current->queue && !entry->clock && !(entry->clock = malloc(sizeof *entry->clock))) {
        entry->next_unused = current->unused_event;
        current->unused_event = (uint32_t)number;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (entry->clock)
        entry->clock->streams = 0;
    *ret = (CUevent)(uintptr_t)number;
    return CUDA_SUCCESS;
}

/* Its number goes in front of the list of those to use again. */
static CUresult ledger_event_destroy(CUevent event)
{
    ledger_event_of(event)->next_unused = current->unused_event;
    current->unused_event = (uint32_t)(uintptr_t)event;
    return CUDA_SUCCESS;
}

/* With a queue an event is complete once all work before its recording is. Without one, the first so many recordings of
   the device are. */
static CUresult ledger_event_query(CUevent event)
{
    const struct sg_ledger_event *entry = ledger_event_of(event);
    bool complete = current->queue ? sg_lag_queue_is_complete(current->queue, entry->clock)
                                   : entry->recording <= current->device[entry->device].recordings_complete;
    return complete ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult ledger_event_synchronize(CUevent event)
{
    const struct sg_ledger_event *entry = ledger_event_of(event);
    if (current->queue)
        ledger_finish(entry->clock);
    else if (current->device[entry->device].recordings_complete < entry->recording)
        current->device[entry->device].recordings_complete = entry->recording;
    return CUDA_SUCCESS;
}

/* An event over all streams of the present device. */
static CUresult ledger_ctx_record_event(CUcontext context, CUevent event)
{
    (void)context;
    struct sg_ledger_event *entry = ledger_event_of(event);
    entry->recording = ++current->device[ordinal].recordings;
    entry->device = (uint32_t)ordinal;
    if (current->queue)
        sg_lag_queue_record_all(current->queue, ordinal, entry->clock);
    return CUDA_SUCCESS;
}

/* The number of a stream in the queue: the handle is that number. */
static uint32_t ledger_stream_number(CUstream stream)
{
    return sg_lag_queue_stream(current->queue, (uintptr_t)stream, ordinal);
}

static CUresult ledger_event_record(CUevent event, CUstream stream)
{
    if (!current->queue)
        return ledger_ctx_record_event(NULL, event);
    sg_lag_queue_record(current->queue, ledger_stream_number(stream), ledger_event_of(event)->clock);
    return CUDA_SUCCESS;
}

/* The calls of calls.def that the core makes in a replay. The rest are NULL: those are the preload library's. */
const struct sg_driver sg_ledger_driver = {
    .ctx_get_current = ledger_ctx_get_current,
    .ctx_synchronize = ledger_ctx_synchronize,
    .device_attribute = ledger_device_attribute,
    .device_total = ledger_device_total,
    .mem_info = ledger_mem_info,
    .mem_alloc = ledger_mem_alloc,
    .mem_free = ledger_mem_free,
    .address_reserve = ledger_address_reserve,
    .address_free = ledger_address_free,
    .granularity = ledger_granularity,
    .create = ledger_create,
    .release = ledger_release,
    .map = ledger_map,
    .unmap = ledger_unmap,
    .set_access = ledger_set_access,
    .event_create = ledger_event_create,
    .event_destroy = ledger_event_destroy,
    .event_record = ledger_event_record,
    .event_query = ledger_event_query,
    .event_synchronize = ledger_event_synchronize,
    .ctx_record_event = ledger_ctx_record_event,
};
