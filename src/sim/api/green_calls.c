/* Green contexts: a share of a device's multiprocessors with streams of its own. Kernels do nothing here, so the share
   is a number; what counts is whose work is waited for. Memory and modules are those of the primary context. */
#include <stdlib.h>
#include <string.h>

#include "api/context_life.h"
#include "calls.h"
#include "device/context.h"
#include "device/device.h"
#include "device/green.h"
#include "streams/stream.h"

/* The least share of a device of compute capability 8, and the step. Source: cuda.h, the text of cuDevSmResourceSplitByCount. */
enum { SHARE_LEAST = 4, SHARE_STEP = 2 };

static const uint64_t magic = UINT64_C(0x7365676772303031);

/* Content of the part of a resource that programs don't look at. */
struct inside {
    uint64_t magic;
    int32_t device;
};

struct CUdevResourceDesc_st {
    struct sim_handle handle;
    int device;
    unsigned count;
};

static CUdevResource green_resource(int device, unsigned count)
{
    const struct inside inside = {magic, device};
    CUdevResource resource = {.type = CU_DEV_RESOURCE_TYPE_SM};
    memcpy(resource._internal_padding, &inside, sizeof inside);
    resource.sm = (CUdevSmResource){count, SHARE_LEAST, SHARE_STEP};
    return resource;
}

static CUresult green_look_into(const CUdevResource *resource, int *ret_device)
{
    struct inside inside;
    memcpy(&inside, resource->_internal_padding, sizeof inside);
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (inside.magic != magic)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_device = inside.device;
    return CUDA_SUCCESS;
}

static unsigned green_all_of(CUdevice device)
{
    int count = 0;
    (void)cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    return (unsigned)count;
}

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER(cuDeviceGetDevResource);
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sim_lock();
    bool valid = sim_device(device) != NULL;
    sim_unlock();
    if (valid)
        *resource = green_resource(device, green_all_of(device));
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups, const CUdevResource *input,
    CUdevResource *remaining, unsigned int flags, unsigned int min_count)
{
    SIM_ENTER(cuDevSmResourceSplitByCount);
    int device;
    if (!groups || !input || (result && !*groups) || min_count > input->sm.smCount ||
        flags & ~(unsigned)(CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                            CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult answer = green_look_into(input, &device);
    if (answer != CUDA_SUCCESS)
        return answer;
    unsigned share = min_count > SHARE_LEAST ? (min_count + SHARE_STEP - 1) / SHARE_STEP * SHARE_STEP : SHARE_LEAST;
    unsigned most = input->sm.smCount / share, wanted = result && *groups < most ? *groups : most;
    if (!most)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    const unsigned whole = input->sm.smCount; /* the input may be one of the outputs */
    for (unsigned i = 0; result && i < wanted; i++)
        result[i] = green_resource(device, share);
    if (remaining)
        *remaining = whole > wanted * share ? green_resource(device, whole - wanted * share) : (CUdevResource){0};
    *groups = wanted;
    return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources, unsigned int count)
{
    SIM_ENTER_WITH(cuDevResourceGenerateDesc, description, resources);
    int device = 0, other;
    unsigned sum = 0;
    if (!description || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        CUresult answer = green_look_into(&resources[i], &other);
        if (answer != CUDA_SUCCESS)
            return answer;
        if (i && other != device)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        device = other;
        sum += resources[i].sm.smCount;
    }
    CUdevResourceDesc made = calloc(1, sizeof *made); /* for good: no call gives it back */
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->device = device;
    made->count = sum;
    sim_lock();
    sim_handle_add(&made->handle, SIM_KIND_RESOURCES);
    sim_unlock();
    *description = made;
    return CUDA_SUCCESS;
}

static CUresult green_create(struct sim_device *device, unsigned count, CUgreenCtx *ret)
{
    CUcontext primary;
    CUgreenCtx green = calloc(1, sizeof *green);
    CUresult result = green ? sim_context_retain(device, &primary) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = sim_context_new_green(device, primary, green, &green->context);
        if (result != CUDA_SUCCESS)
            sim_context_release(device);
    }
    if (result != CUDA_SUCCESS) {
        free(green);
        return result;
    }
    green->count = count;
    sim_handle_add(&green->handle, SIM_KIND_GREEN);
    *ret = green;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice ordinal, unsigned int flags)
{
    SIM_ENTER(cuGreenCtxCreate);
    if (!green || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS && (!sim_handle_valid(description, SIM_KIND_RESOURCES) || description->device != ordinal))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = green_create(device, description->count, green);
    sim_unlock();
    return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    SIM_ENTER(cuGreenCtxDestroy);
    sim_lock();
    bool valid = sim_handle_valid(green, SIM_KIND_GREEN);
    if (valid) {
        struct sim_device *device = green->context->device;
        sim_handle_drop(&green->handle);
        sim_context_detach(green->context);
        sim_context_release(device);
        free(green);
    }
    sim_unlock();
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    SIM_ENTER_WITH(cuCtxFromGreenCtx, context);
    CUcontext found = context ? sim_green_context(green) : NULL;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (found)
        *context = found;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags, int priority)
{
    SIM_ENTER_WITH(cuGreenCtxStreamCreate, stream);
    if (!stream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    sim_lock();
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    if (sim_handle_valid(green, SIM_KIND_GREEN))
        result = sim_stream_new(green->context, SIM_STREAM_CREATED, flags, priority, stream);
    sim_unlock();
    return result;
}

static CUresult green_resource_of_context(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sim_lock();
    CUresult result = sim_context_get(context, &context);
    int device = result == CUDA_SUCCESS ? context->device->ordinal : 0;
    unsigned count = result == CUDA_SUCCESS && context->green ? context->green->count : 0;
    sim_unlock();
    if (result == CUDA_SUCCESS)
        *resource = green_resource(device, count ? count : green_all_of(device));
    return result;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER_WITH(cuGreenCtxGetDevResource, green, resource);
    CUcontext context = sim_green_context(green);
    return context ? green_resource_of_context(context, resource, type) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
    SIM_ENTER_WITH(cuCtxGetDevResource, context, resource);
    return green_resource_of_context(context, resource, type);
}
