#include "api/extra_calls.h"

#include <stdio.h>

#include "api/notify_calls.h"
#include "calls.h"
#include "device/card.h"
#include "device/context.h"
#include "device/device.h"
#include "graphs/condition.h"
#include "hazard/hazard.h"
#include "hazard/owner.h"
#include "kernels/declared.h"
#include "space/host_pages.h"
#include "space/managed.h"
#include "space/mapping.h"
#include "space/memory_table.h"
#include "streams/executor.h"
#include "streams/schedule.h"

uint64_t segalloc_sim_used(int ordinal)
{
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    uint64_t used = device ? sim_card_used(device) : 0;
    sim_unlock();
    return used;
}

int segalloc_sim_over_budget(int device, uint64_t bytes)
{
    return sim_notify_over_budget(device, bytes);
}

int segalloc_sim_handles(uint64_t address, uint64_t bytes)
{
    int handles = 0;
    sim_lock();
    struct sim_memory *memory = sim_memory_find(address);
    uint64_t end = address + bytes;
    bool whole = memory && end <= memory->range.base + memory->range.size;
    if (whole && memory->kind != SIM_MEMORY_RESERVATION)
        handles = memory->kind == SIM_MEMORY_DEVICE || memory->kind == SIM_MEMORY_POOL;
    for (uint64_t at = address; whole && memory->kind == SIM_MEMORY_RESERVATION && at < end; handles++) {
        struct sim_mapping *mapping = sim_mapping_find(at);
        whole = mapping != NULL;
        at = whole ? mapping->range.base + mapping->range.size : end;
    }
    sim_unlock();
    return whole ? handles : 0;
}

int segalloc_sim_host(char *ret, size_t size)
{
    sim_lock();
    int length = snprintf(ret, size, "%s", sim.config.host);
    if (length && sim.device_count)
        sim_card_look_at_host(&sim.devices[0]);
    sim_unlock();
    return length;
}

size_t segalloc_sim_processes(int index, struct segalloc_sim_process *ret, size_t room)
{
    return sim_card_processes(index, ret, room);
}

int segalloc_sim_managed(int ordinal, struct segalloc_sim_managed *ret)
{
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    if (device) {
        sim_managed_settle(device);
        *ret = device->managed;
    }
    sim_unlock();
    return device ? 0 : -1;
}

int segalloc_sim_link(int ordinal, struct segalloc_sim_link *ret)
{
    sim_lock();
    const struct sim_device *device = sim_device(ordinal);
    if (device)
        *ret = (struct segalloc_sim_link){device->link.host_bytes + device->link.peer_bytes, sim_host_pages_bytes(),
            device->link.peer_bytes, device->link.untold};
    sim_unlock();
    return device ? 0 : -1;
}

void segalloc_sim_owner(uint64_t address, uint64_t bytes, uint64_t owner)
{
    sim_lock();
    sim_owner_declare_by_program(address, bytes, owner);
    if (owner)
        sim_schedule_allocated();
    sim_unlock();
}

int segalloc_sim_block(uint64_t address, uint64_t bytes, int handed_out)
{
    sim_lock();
    bool on = sim.config.hazard;
    if (on && bytes && sim_owner_block(address, bytes, handed_out) && handed_out)
        sim_schedule_allocated();
    sim_unlock();
    return on;
}

void segalloc_sim_upkeep(int on)
{
    sim_hazard_upkeep(on != 0);
}

void segalloc_sim_touches(uint64_t address, uint64_t bytes, int write)
{
    sim_touches_announce(address, bytes, write);
}

int segalloc_sim_kernel(const char *name, const char *arguments, void (*run)(void **arguments))
{
    return sim_kernel_declare(name, arguments, run);
}

void segalloc_sim_condition(uint64_t handle, unsigned value)
{
    sim_lock();
    struct sim_condition *condition = sim_condition_find(handle);
    if (condition)
        condition->value = value;
    sim_unlock();
}

void segalloc_sim_schedule(uint64_t seed, int64_t run_ahead)
{
    sim_lock();
    if (sim_scheduled())
        sim_schedule_start(seed, run_ahead);
    sim_unlock();
}

uint64_t segalloc_sim_fault(void)
{
    uint64_t address = 0;
    sim_lock();
    for (CUcontext context = sim.contexts; context && !address; context = context->next)
        address = context->error ? context->fault : 0;
    sim_unlock();
    return address;
}

uint64_t segalloc_sim_hazards(void)
{
    sim_lock();
    uint64_t count = sim_hazard_reports();
    sim_unlock();
    return count;
}

size_t segalloc_sim_calls(struct segalloc_sim_call *ret_rows, size_t max)
{
    return sim_calls_rows(ret_rows, max);
}

uint64_t segalloc_sim_ns(void)
{
    return sim_calls_ns();
}
