#include "device/context.h"

#include <stdlib.h>
#include <string.h>

#include "graphs/graph.h"
#include "kernels/module.h"
#include "wrap.h"

enum { STACK_MAX = 64 };

static _Thread_local struct {
    CUcontext at[STACK_MAX];
    unsigned depth;
} stack;

static const size_t default_limits[CU_LIMIT_MAX] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128,
};

static CUresult usable(CUcontext context)
{
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context->error;
}

CUresult sim_context_current(CUcontext *ret)
{
    if (!stack.depth || !stack.at[stack.depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = stack.at[stack.depth - 1];
    return usable(*ret);
}

CUresult sim_context_get(CUcontext handle, CUcontext *ret)
{
    if (!handle)
        return sim_context_current(ret);
    if (!sim_handle_valid(handle, SIM_KIND_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret = handle;
    return usable(handle);
}

CUcontext sim_context_primary(struct sim_device *device)
{
    return device->primary && device->primary->alive ? device->primary : NULL;
}

static CUresult open_context(CUcontext context)
{
    CUresult result = sim_stream_new(context, SIM_STREAM_LEGACY, CU_STREAM_DEFAULT, 0, &context->legacy);
    if (result == CUDA_SUCCESS)
        result = sim_stream_new(context, SIM_STREAM_MARKER, CU_STREAM_NON_BLOCKING, 0, &context->marker);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(context->limits, default_limits, sizeof default_limits);
    context->id = ++sim.next_id; /* a primary one that is taken up again is another one */
    context->error = CUDA_SUCCESS;
    context->alive = true;
    return CUDA_SUCCESS;
}

static CUresult new_context(struct sim_device *device, unsigned flags, bool primary, CUcontext *ret)
{
    CUcontext context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->flags = flags;
    context->primary = primary;
    context->next = sim.contexts;
    sim.contexts = context;
    sim_handle_add(&context->handle, SIM_KIND_CONTEXT);
    CUresult result = open_context(context);
    if (result == CUDA_SUCCESS)
        *ret = context;
    return result;
}

/* Calls for all work of a device go over the list, so a context that is gone would cost each of them time for ever. A
   primary one may be taken up again, and streams of a green one outlive it: those stay. Who is at this context in the
   list, and waits unlocked, goes on from it by `next`, which stays. */
static void unlist_context(CUcontext context)
{
    CUcontext *link = &sim.contexts;
    while (*link != context)
        link = &(*link)->next;
    *link = context->next;
}

/* Waits for its work, then takes all that it holds. VMM memory and pools outlive it. */
static void close_context(CUcontext context)
{
    sim_wait_context(context);
    if (!context->alive)
        return;
    context->alive = false;
    for (CUstream s = context->streams, next; s; s = next) {
        next = s->next;
        if (s->alive)
            sim_stream_close(s, true);
    }
    sim_deps_free(context->barriers);
    context->barriers = NULL;
    sim_clock_clear(&context->barrier_clock);
    sim_clock_clear(&context->gone_clock);
    sim_module_drop_context(context);
    sim_memory_drop_context(context);
    memset(context->peers, 0, sizeof context->peers);
    if (!context->primary)
        unlist_context(context);
}

static unsigned schedule_bits(unsigned flags)
{
    return flags & CU_CTX_SCHED_MASK;
}

static bool flags_valid(unsigned flags)
{
    unsigned schedule = schedule_bits(flags);
    return !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) && !sg_has_several_bits(schedule);
}

CUresult sim_context_retain(struct sim_device *device, CUcontext *ret)
{
    CUresult result = CUDA_SUCCESS;
    if (!device->primary)
        result = new_context(device, device->primary_flags, true, &device->primary);
    else if (!device->primary->alive)
        result = open_context(device->primary);
    if (result != CUDA_SUCCESS)
        return result;
    device->primary->flags = device->primary_flags;
    device->primary_refs++;
    *ret = device->primary;
    return CUDA_SUCCESS;
}

void sim_context_release(struct sim_device *device)
{
    if (--device->primary_refs)
        return;
    sim_wait_context(device->primary);
    if (device->primary_refs == 0) /* nobody took it up again meanwhile */
        close_context(device->primary);
}

CUresult sim_context_new_green(struct sim_device *device, CUcontext parent, CUgreenCtx green, CUcontext *ret)
{
    CUresult result = new_context(device, parent->flags, false, ret);
    if (result == CUDA_SUCCESS) {
        (*ret)->parent = parent;
        (*ret)->green = green;
    }
    return result;
}

void sim_context_detach(CUcontext green)
{
    sim_wait_context(green);
    for (CUstream s = green->streams; s; s = s->next) {
        if (s->capture)
            sim_capture_ruin(s->capture);
    }
    green->alive = false;
    green->error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    sim_deps_free(green->barriers);
    green->barriers = NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxRetain);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = !device ? CUDA_ERROR_INVALID_DEVICE : context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = sim_context_retain(device, context);
    sim_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxRelease_v2);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = !device ? CUDA_ERROR_INVALID_DEVICE
                      : device->primary_refs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        sim_context_release(device);
    sim_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return cuDevicePrimaryCtxRelease_v2(ordinal);
}

/* Whoever had taken it up still has to release it. Source: the text of cuDevicePrimaryCtxReset in cuda.h. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    SIM_ENTER(cuDevicePrimaryCtxReset_v2);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    if (device && sim_context_primary(device)) {
        close_context(device->primary);
        device->primary_flags = 0;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return cuDevicePrimaryCtxReset_v2(ordinal);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice ordinal, unsigned int flags)
{
    SIM_ENTER(cuDevicePrimaryCtxSetFlags_v2);
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = !device ? CUDA_ERROR_INVALID_DEVICE
                      : flags_valid(flags) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        device->primary_flags = flags;
        if (device->primary)
            device->primary->flags = flags;
    }
    sim_unlock();
    return result;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice ordinal, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(ordinal, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
    SIM_ENTER_WITH(cuDevicePrimaryCtxGetState, ordinal, flags, active);
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    if (device) {
        *flags = device->primary_flags;
        *active = sim_context_primary(device) != NULL;
    }
    sim_unlock();
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult create(CUcontext *ret, unsigned flags, CUdevice ordinal)
{
    if (!ret || !flags_valid(flags))
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    struct sim_device *device = sim_device(ordinal);
    CUresult result = CUDA_ERROR_INVALID_DEVICE;
    CUcontext context;
    if (device && stack.depth < STACK_MAX)
        result = new_context(device, flags, false, &context);
    if (result == CUDA_SUCCESS) {
        context->users = 1;
        stack.at[stack.depth++] = context;
        *ret = context;
    }
    sim_unlock();
    return result;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v2);
    return create(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags,
    CUdevice device)
{
    SIM_ENTER(cuCtxCreate_v3);
    return params || count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    SIM_ENTER_WITH(cuCtxCreate_v4, context, params);
    if (params && (params->numExecAffinityParams || params->cigParams))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    SIM_ENTER_WITH(cuCtxDestroy_v2, context);
    sim_lock();
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    if (sim_handle_valid(context, SIM_KIND_CONTEXT) && !context->primary && !context->parent)
        result = context->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS)
        close_context(context);
    sim_unlock();
    if (result == CUDA_SUCCESS && stack.depth && stack.at[stack.depth - 1] == context)
        stack.depth--;
    return result;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

/* The current context gets one more user. A primary one has no such count. */
CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    SIM_ENTER(cuCtxAttach);
    if (!context || flags)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext current;
    CUresult result = sim_context_current(&current);
    if (result == CUDA_SUCCESS && !current->users)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        current->users++;
        *context = current;
    }
    sim_unlock();
    return result;
}

/* Ends a context that has no user left. It must be current, as the reference says. */
CUresult cuCtxDetach(CUcontext context)
{
    SIM_ENTER(cuCtxDetach);
    bool last = false;
    sim_lock();
    bool current = stack.depth && stack.at[stack.depth - 1] == context && sim_handle_valid(context, SIM_KIND_CONTEXT);
    CUresult result = !current || (context->alive && !context->users) ? CUDA_ERROR_INVALID_CONTEXT
                      : context->alive                                ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (result == CUDA_SUCCESS) {
        last = --context->users == 0;
        if (last)
            close_context(context);
    }
    sim_unlock();
    if (last)
        stack.depth--;
    return result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    SIM_ENTER(cuCtxPushCurrent_v2);
    sim_lock();
    bool valid = sim_handle_valid(context, SIM_KIND_CONTEXT);
    sim_unlock();
    if (!valid || stack.depth == STACK_MAX)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.at[stack.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    SIM_ENTER(cuCtxPopCurrent_v2);
    if (!stack.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth--;
    if (context)
        *context = stack.at[stack.depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

/* Replaces the top of the stack; NULL takes it away. */
CUresult cuCtxSetCurrent(CUcontext context)
{
    SIM_ENTER(cuCtxSetCurrent);
    if (!context) {
        stack.depth -= stack.depth > 0;
        return CUDA_SUCCESS;
    }
    sim_lock();
    bool valid = sim_handle_valid(context, SIM_KIND_CONTEXT);
    sim_unlock();
    if (!valid)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth += stack.depth == 0;
    stack.at[stack.depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    SIM_ENTER(cuCtxGetCurrent);
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = stack.depth ? stack.at[stack.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

static CUresult get_device(CUcontext handle, CUdevice *ret)
{
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_get(handle, &context);
    if (result == CUDA_SUCCESS)
        *ret = context->device->ordinal;
    sim_unlock();
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    SIM_ENTER(cuCtxGetDevice);
    return get_device(NULL, device);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    SIM_ENTER(cuCtxGetDevice_v2);
    return get_device(context, device);
}

static CUresult synchronize(CUcontext handle)
{
    sim_lock();
    CUcontext context;
    CUresult result = sim_context_get(handle, &context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_context(context);
    if (result == CUDA_SUCCESS)
        result = sim_wait_context(context);
    sim_pool_trim();
    sim_unlock();
    return result;
}

CUresult cuCtxSynchronize(void)
{
    SIM_ENTER(cuCtxSynchronize);
    return synchronize(NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    SIM_ENTER(cuCtxSynchronize_v2);
    return synchronize(context);
}
