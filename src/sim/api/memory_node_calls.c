/* Entry points of allocation and free nodes, and of what a device holds for graphs. */
#include "calls.h"
#include "device/device.h"
#include "graphs/graph.h"
#include "memory/graph_memory.h"
#include "space/memory_table.h"

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphAddMemAllocNode);
    if (!node || !params || !params->bytesize || params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_device *device = sim_device(params->poolProps.location.id);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_lock();
    struct sim_step step = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    CUresult result = sim_graph_memory_new(device, params->bytesize, &step.memory);
    uint64_t base = result == CUDA_SUCCESS ? step.memory->memory->range.base : 0;
    if (result == CUDA_SUCCESS)
        result = sim_graph_add(graph, deps, count, step, node);
    if (result == CUDA_SUCCESS)
        params->dptr = base;
    sim_unlock();
    return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    SIM_ENTER(cuGraphMemAllocNodeGetParams);
    sim_lock();
    bool valid = params && sim_handle_valid(node, SIM_KIND_NODE) && node->step.memory;
    if (valid) {
        const struct sim_memory *memory = node->step.memory->memory;
        *params = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = memory->range.size, .dptr = memory->range.base};
        params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        params->poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, memory->device->ordinal};
    }
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t count,
    CUdeviceptr address)
{
    SIM_ENTER(cuGraphAddMemFreeNode);
    if (!node)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_memory *memory = sim_memory_find(address);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (memory && memory->graph && memory->range.base == address)
        result = sim_graph_add(graph, deps, count,
            (struct sim_step){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .address = address}, node);
    sim_unlock();
    return result;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    SIM_ENTER(cuGraphMemFreeNodeGetParams);
    sim_lock();
    bool valid = address && sim_handle_valid(node, SIM_KIND_NODE) && node->step.address;
    if (valid)
        *address = node->step.address;
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Nothing is kept for the next launch, so what is used is what is reserved, and there is nothing to trim. */
CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    SIM_ENTER(cuDeviceGraphMemTrim);
    return sim_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    SIM_ENTER(cuDeviceGetGraphMemAttribute);
    struct sim_device *device = sim_device(ordinal);
    if (!device || !value || (unsigned)attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        return device ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    sim_lock();
    *(cuuint64_t *)value = high ? device->graph_high : device->graph_used;
    sim_unlock();
    return CUDA_SUCCESS;
}

/* Only the highest values can be set, and only to zero. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value)
{
    SIM_ENTER(cuDeviceSetGraphMemAttribute);
    struct sim_device *device = sim_device(ordinal);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value || *(cuuint64_t *)value ||
        (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    device->graph_high = device->graph_used;
    sim_unlock();
    return CUDA_SUCCESS;
}
