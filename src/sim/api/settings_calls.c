/* The properties of a context: queries and settings. */
#include "calls.h"
#include "device/context.h"
#include "device/device.h"

#define WITH_CONTEXT(handle)                                  \
    sim_lock();                                               \
    CUcontext context_;                                       \
    CUresult result = sim_context_get((handle), &context_)

CUresult cuCtxGetFlags(unsigned int *flags)
{
    SIM_ENTER_WITH(cuCtxGetFlags, flags);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        *flags = context_->flags;
    sim_unlock();
    return result;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    SIM_ENTER(cuCtxSetFlags);
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        context_->flags = flags;
    sim_unlock();
    return result;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    SIM_ENTER_WITH(cuCtxGetId, context, id);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CONTEXT(context);
    if (result == CUDA_SUCCESS)
        *id = context_->id;
    sim_unlock();
    return result;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    SIM_ENTER(cuCtxGetApiVersion);
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CONTEXT(context);
    if (result == CUDA_SUCCESS)
        *version = 3020;
    sim_unlock();
    return result;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    SIM_ENTER(cuCtxGetLimit);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        *value = context_->limits[limit];
    sim_unlock();
    return result;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    SIM_ENTER(cuCtxSetLimit);
    if ((unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        context_->limits[limit] = value;
    sim_unlock();
    return result;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    SIM_ENTER(cuCtxGetCacheConfig);
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        *config = context_->cache;
    sim_unlock();
    return result;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    SIM_ENTER(cuCtxSetCacheConfig);
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        context_->cache = config;
    sim_unlock();
    return result;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    SIM_ENTER(cuCtxGetSharedMemConfig);
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        *config = context_->shared_config;
    sim_unlock();
    return result;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    SIM_ENTER(cuCtxSetSharedMemConfig);
    WITH_CONTEXT(NULL);
    if (result == CUDA_SUCCESS)
        context_->shared_config = config;
    sim_unlock();
    return result;
}

/* Six levels, as on compute capability 8.0. NULL is legal for either. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    SIM_ENTER(cuCtxGetStreamPriorityRange);
    WITH_CONTEXT(NULL);
    sim_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    SIM_ENTER(cuCtxResetPersistingL2Cache);
    WITH_CONTEXT(NULL);
    sim_unlock();
    return result;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
    SIM_ENTER(cuCtxGetExecAffinity);
    return affinity && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY
                                                              : CUDA_ERROR_INVALID_VALUE;
}

static bool peer_is_reachable(int from, int to)
{
    return sim.config.peers && from != to && sim_device(from) && sim_device(to);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    SIM_ENTER(cuDeviceCanAccessPeer);
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(device) || !sim_device(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = peer_is_reachable(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice src, CUdevice dst)
{
    SIM_ENTER(cuDeviceGetP2PAttribute);
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_device(src) || !sim_device(dst) || src == dst)
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = peer_is_reachable(src, dst);
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    SIM_ENTER(cuCtxEnablePeerAccess);
    if (flags || !peer)
        return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    WITH_CONTEXT(NULL);
    CUcontext other;
    if (result == CUDA_SUCCESS)
        result = sim_context_get(peer, &other);
    if (result == CUDA_SUCCESS && !peer_is_reachable(context_->device->ordinal, other->device->ordinal))
        result = other == context_ ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (result == CUDA_SUCCESS && context_->peers[other->device->ordinal])
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (result == CUDA_SUCCESS)
        context_->peers[other->device->ordinal] = true;
    sim_unlock();
    return result;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
    SIM_ENTER(cuCtxDisablePeerAccess);
    if (!peer)
        return CUDA_ERROR_INVALID_CONTEXT;
    WITH_CONTEXT(NULL);
    CUcontext other;
    if (result == CUDA_SUCCESS)
        result = sim_context_get(peer, &other);
    if (result == CUDA_SUCCESS && !context_->peers[other->device->ordinal])
        result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    if (result == CUDA_SUCCESS)
        context_->peers[other->device->ordinal] = false;
    sim_unlock();
    return result;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
{
    SIM_ENTER(cuFlushGPUDirectRDMAWrites);
    (void)target, (void)scope;
    return CUDA_SUCCESS;
}

CUresult cuProfilerStart(void)
{
    SIM_ENTER(cuProfilerStart);
    WITH_CONTEXT(NULL);
    sim_unlock();
    return result;
}

CUresult cuProfilerStop(void)
{
    SIM_ENTER(cuProfilerStop);
    WITH_CONTEXT(NULL);
    sim_unlock();
    return result;
}
