/* Frees that take effect later: after work of some streams, or after all work that there is. An *epoch* is a group
   of the latter that shares its fences (fences.c). */
#include <assert.h>

#include "device.h"

void sg_pending_push(struct sg_device *device, uint32_t id, uint64_t slots, uint64_t time)
{
    struct sg_node *node = &device->nodes.node[id];
    struct sg_pending_queue *queue = slots & 1 ? &device->pending : &device->blocked;
    assert(node->state == SG_NODE_PENDING);
    node->also = slots;
    node->time = time;
    node->later = 0;
    sg_order_owe(device, slots);
    if (queue->last)
        device->nodes.node[queue->last].later = id;
    else
        queue->first = id;
    queue->last = id;
}

/* All work before `time` is complete: what waited for it is free. Under the lock. */
static void settle_pending(struct sg_device *device, uint64_t time)
{
    uint32_t id;
    while ((id = device->pending.first) && device->nodes.node[id].time <= time) {
        struct sg_node *node = &device->nodes.node[id];
        device->pending.first = node->later;
        if (!node->later)
            device->pending.last = 0;
        sg_emit(device, SEGALLOC_RECORD_DONE, 0, node->stream,
            sg_region_address(device->region[node->region], node->begin), node->requested);
        sg_device_release(device, id, 0, 0);
        device->learnt++;
    }
}

void sg_core_settle(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    if (!device)
        return;
    sg_lock(&device->lock);
    if (device->pending.first)
        settle_pending(device, device->nodes.node[device->pending.first].time);
    sg_unlock(&device->lock);
}

void sg_pending_settle_epochs(struct sg_device *device)
{
    uint32_t over = 0;
    while (over < device->epoch_count && (device->mark_count == 0 || device->mark[0].number > device->epoch[over].last))
        settle_pending(device, device->epoch[over++].time);
    device->epoch_count -= over;
    for (uint32_t i = 0; over && i < device->epoch_count; i++)
        device->epoch[i] = device->epoch[i + over];
}

void sg_pending_complete(struct sg_device *device, uint64_t slots, uint64_t time)
{
    uint64_t version = device->order.version;
    if (slots & 1)
        settle_pending(device, time);
    for (uint64_t left = slots & ~sg_slot_bit(0); left; left &= left - 1)
        sg_order_complete(device, (sg_slot)__builtin_ctzll(left), time);
    device->learnt += device->order.version != version;
}

static bool waits_for_others(const struct sg_node *node)
{
    return node->state == SG_NODE_PENDING && node->context == SG_OWNER_IS_DONE;
}

/* The pages that may go back wholly inside [begin, end), in units. */
static uint64_t pages_between(const struct sg_region *region, uint32_t begin, uint32_t end)
{
    uint64_t pages = 0;
    for (uint32_t page = (begin + region->page_units - 1) / region->page_units;
         (page + 1) * (uint64_t)region->page_units <= end; page++)
        pages += !region->pin[page];
    return pages;
}

/* How many whole pages more the run of free and such pending pieces around one of them has than its free pieces
   have. 0 if the piece is not the first of its kind in the run, so that each run counts once. */
static uint64_t pages_of_run(const struct sg_device *device, uint32_t id)
{
    const struct sg_node *nodes = device->nodes.node;
    const struct sg_region *region = device->region[nodes[id].region];
    uint32_t first = id, last = 0;
    uint64_t free_pages = 0;
    while (nodes[first].prev && nodes[nodes[first].prev].state == SG_NODE_FREE)
        first = nodes[first].prev;
    if (nodes[first].prev && waits_for_others(&nodes[nodes[first].prev]))
        return 0;
    for (uint32_t at = first; at && (nodes[at].state == SG_NODE_FREE || waits_for_others(&nodes[at]));
         at = nodes[at].next) {
        if (nodes[at].state == SG_NODE_FREE)
            free_pages += pages_between(region, nodes[at].begin, nodes[at].begin + nodes[at].size);
        last = at;
    }
    return pages_between(region, nodes[first].begin, nodes[last].begin + nodes[last].size) - free_pages;
}

uint64_t sg_pending_returnable(const struct sg_device *device)
{
    const struct sg_node *nodes = device->nodes.node;
    uint64_t units = 0;
    for (uint32_t id = device->pending.first; id; id = nodes[id].later)
        if (waits_for_others(&nodes[id]))
            units += pages_of_run(device, id) * device->region[nodes[id].region]->page_units;
    return units << SG_UNIT_SHIFT;
}

bool sg_pending_awaits(const struct sg_device *device)
{
    const struct sg_node *nodes = device->nodes.node;
    uint32_t id = device->pending.first;
    while (id && waits_for_others(&nodes[id]))
        id = nodes[id].later;
    if (id)
        return true;
    for (id = device->blocked.first; id; id = nodes[id].later)
        if (!sg_after_complete(&device->order, (struct sg_after){nodes[id].also, nodes[id].time}))
            return true;
    return false;
}

/* Takes what has become free for `heir` out of the queue; 0: for each block's own stream. Returns whether there was
   any. */
static bool settle_blocked(struct sg_device *device, sg_slot heir)
{
    struct sg_order *order = &device->order;
    uint32_t *link = &device->blocked.first, last = 0;
    bool any = false;
    while (*link) {
        uint32_t id = *link;
        struct sg_node *node = &device->nodes.node[id];
        sg_slot own = sg_device_slot_of(device, node->stream), slot = heir ? heir : own;
        const struct sg_after after = {node->also, node->time};
        if (sg_after_usable(order, after, order->state[slot] == SG_SLOT_ALIVE ? slot : 0)) {
            bool complete = sg_after_complete(order, after);
            *link = node->later;
            /* Who comes after all that this stream has come after has come after all of them. */
            uint64_t later = order->moved_on[slot] > after.time ? order->moved_on[slot] : after.time;
            sg_device_release(device, id, complete ? own : slot, complete ? after.time : later);
            sg_order_owe(device, complete ? 0 : sg_slot_bit(slot));
            any = true;
        } else {
            last = id;
            link = &node->later;
        }
    }
    device->blocked.last = last;
    return any;
}

void sg_pending_settle(struct sg_device *device)
{
    if (device->settled == device->order.version)
        return;
    device->settled = device->order.version;
    (void)settle_blocked(device, 0);
}

bool sg_pending_inherit(struct sg_device *device, sg_slot slot)
{
    return slot && device->blocked.first && settle_blocked(device, slot);
}

/* Frees what waits in a queue: nobody is left who could be using it. */
static void forget_queue(struct sg_device *device, struct sg_pending_queue *queue)
{
    for (uint32_t id = queue->first, next; id; id = next) {
        const struct sg_node *node = &device->nodes.node[id];
        next = node->later;
        if (node->also & 1)
            sg_emit(device, SEGALLOC_RECORD_DONE, 0, node->stream,
                sg_region_address(device->region[node->region], node->begin), node->requested);
        sg_device_release(device, id, 0, 0);
    }
    *queue = (struct sg_pending_queue){0};
}

void sg_pending_forget(struct sg_device *device, CUcontext context)
{
    struct sg_order *order = &device->order;
    uint32_t left = 0;
    for (uint64_t slots = sg_order_slots_of(order, context); slots; slots &= slots - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(slots);
        if (order->state[slot] == SG_SLOT_ALIVE)
            sg_order_gone(device, slot);
        sg_order_complete(device, slot, device->serial);
    }
    for (uint32_t i = 0; i < device->mark_count; i++) /* events die with their context */
        if (context && device->mark[i].context != context)
            device->mark[left++] = device->mark[i];
    device->mark_count = left;
    left = 0;
    for (uint32_t i = 0; i < device->idle_count; i++)
        if (context && device->idle_event[i].context != context)
            device->idle_event[left++] = device->idle_event[i];
    device->idle_count = left;
    sg_pending_settle_epochs(device);
    if (!context || !sg_device_contexts(device, /* own */ true)) {
        forget_queue(device, &device->pending);
        forget_queue(device, &device->blocked);
    }
    sg_pending_settle(device);
}
