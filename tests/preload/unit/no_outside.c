/* Nothing is booked, and no trace is written: for tests of hooks that are about something else. */
#include "services/outside_trace.h"

atomic_bool sg_outside_any;

void sg_outside_taken(enum segalloc_outside what, uint64_t id, int device, uint64_t bytes)
{
    (void)what, (void)id, (void)device, (void)bytes;
}

void sg_outside_taken_here(enum segalloc_outside what, uint64_t id, uint64_t bytes)
{
    (void)what, (void)id, (void)bytes;
}

int sg_outside_given(enum segalloc_outside what, uint64_t id)
{
    (void)what, (void)id;
    return -1;
}

void sg_outside_mapped(CUdeviceptr address, size_t bytes, uint64_t handle)
{
    (void)address, (void)bytes, (void)handle;
}

uint64_t sg_outside_unmapped(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
    return 0;
}

void sg_outside_pool(CUmemoryPool pool, int device)
{
    (void)pool, (void)device;
}

void sg_outside_pool_gone(CUmemoryPool pool)
{
    (void)pool;
}

int sg_outside_pool_device(CUmemoryPool pool)
{
    (void)pool;
    return -1;
}

void sg_outside_use_pools(uint64_t devices)
{
    (void)devices;
}

void sg_outside_launch_begins(void)
{
}

void sg_outside_launch_ended(void)
{
}

uint64_t sg_outside_graphs_most(CUdevice device, CUgraphMem_attribute attribute, uint64_t since)
{
    (void)device, (void)attribute;
    return since;
}

void sg_outside_graphs_most_reset(CUdevice device, CUgraphMem_attribute attribute)
{
    (void)device, (void)attribute;
}

bool sg_outside_uses_pools(void)
{
    return false;
}

bool sg_outside_waited_for_pools(CUcontext context)
{
    (void)context;
    return false;
}

uint64_t sg_outside_used(void)
{
    return 0;
}

void sg_outside_measured(enum segalloc_outside what, uint64_t before, uint64_t after)
{
    (void)what, (void)before, (void)after;
}

bool sg_outside_traced(void)
{
    return false;
}

void sg_outside_changed(uint64_t devices, bool starts)
{
    (void)devices, (void)starts;
}

void sg_outside_note(struct sg_core *core, int device)
{
    (void)core, (void)device;
}

void sg_outside_took(uint64_t devices)
{
    (void)devices;
}

uint64_t sg_outside_stream_device(CUstream stream)
{
    (void)stream;
    return 0;
}
