/* Frees that take effect later: an event over the owner's whole context, one a free, oldest first. */
#include <assert.h>

#include "device.h"

/* The oldest pending node, 0 if there is none. */
static uint32_t oldest(struct sg_device *device, CUevent *ret_event)
{
    sg_lock(&device->lock);
    uint32_t id = device->pending.first;
    if (id)
        *ret_event = (CUevent)(uintptr_t)device->nodes.node[id].event;
    sg_unlock(&device->lock);
    return id;
}

/* The work before the oldest one's event is complete: its memory is free. Returns an event that is one too many to keep, or
   NULL. */
static CUevent settle_oldest(struct sg_device *device, uint32_t id, CUevent event)
{
    CUevent surplus = NULL;
    sg_lock(&device->lock);
    struct sg_node *node = &device->nodes.node[id];
    /* Unless its context went meanwhile, and the block and the event with it. */
    bool still = device->pending.first == id && node->event == (uint64_t)(uintptr_t)event;
    if (still) {
        device->pending.first = node->later;
        if (!node->later)
            device->pending.last = 0;
        sg_emit(device, SEGALLOC_RECORD_DONE, 0, node->stream, sg_region_address(device->region[node->region], node->begin), node->requested);
        sg_device_release(device, id);
        if (device->event_count < SG_STREAMS_MAX)
            device->event[device->event_count++] = event;
        else
            surplus = event;
    }
    sg_unlock(&device->lock);
    return surplus;
}

bool sg_device_poll(struct sg_device *device, bool wait)
{
    const struct sg_driver *driver = device->core->driver;
    bool any = false;
    CUevent event;
    uint32_t id;
    if (!sg_lock_try(&device->asking)) {
        if (!wait)
            return false; /* somebody is at it */
        sg_lock(&device->asking); /* what that thread has waited for is worth another try */
        sg_unlock(&device->asking);
        return true;
    }
    while ((id = oldest(device, &event))) {
        sg_count(device, SG_STAT_calls_event, 1);
        CUresult result = driver->event_query(event);
        if (result == CUDA_ERROR_NOT_READY && wait && !any) {
            uint64_t began = device->core->now_ns ? device->core->now_ns() : 0;
            result = driver->event_synchronize(event);
            sg_count(device, SG_STAT_host_waits, 1);
            sg_count(device, SG_STAT_calls_sync, 1);
            sg_count(device, SG_STAT_host_wait_ns, device->core->now_ns ? device->core->now_ns() - began : 0);
        }
        if (result != CUDA_SUCCESS)
            break;
        CUevent surplus = settle_oldest(device, id, event);
        if (surplus)
            driver->event_destroy(surplus);
        any = true;
    }
    sg_unlock(&device->asking);
    return any;
}

static CUresult spare_event(struct sg_device *device, CUevent *ret)
{
    sg_lock(&device->lock);
    CUevent event = device->event_count ? device->event[--device->event_count] : NULL;
    sg_unlock(&device->lock);
    if (event) {
        *ret = event;
        return CUDA_SUCCESS;
    }
    sg_count(device, SG_STAT_calls_event, 1);
    return device->core->driver->event_create(ret, CU_EVENT_DISABLE_TIMING);
}

CUresult sg_pending_mark(struct sg_device *device, CUcontext context, CUevent *ret)
{
    const struct sg_driver *driver = device->core->driver;
    CUevent event;
    if (!driver->ctx_record_event)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = spare_event(device, &event);
    if (result != CUDA_SUCCESS)
        return result;
    sg_count(device, SG_STAT_calls_event, 1);
    result = driver->ctx_record_event(context, event);
    if (result != CUDA_SUCCESS) {
        driver->event_destroy(event);
        return result;
    }
    *ret = event;
    return CUDA_SUCCESS;
}

void sg_pending_push(struct sg_device *device, uint32_t id, CUevent event)
{
    struct sg_node *node = &device->nodes.node[id];
    assert(node->state == SG_NODE_PENDING);
    node->event = (uint64_t)(uintptr_t)event;
    node->later = 0;
    if (device->pending.last)
        device->nodes.node[device->pending.last].later = id;
    else
        device->pending.first = id;
    device->pending.last = id;
}
