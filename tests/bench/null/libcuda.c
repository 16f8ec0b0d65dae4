/* A driver that does nothing as fast as possible, so that a benchmark times what stands on it: nothing is mapped, no
   address may be touched. Two devices, each with its primary context current where cudaSetDevice said so. */
#include "null.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "cuda_abi.h"
#include "driver.h"

#define EXPORT __attribute__((visibility("default")))
#define CALL(name, symbol, need, parameters) EXPORT CUresult symbol parameters;
#include "calls.def"

static const size_t DEVICE_BYTES = (size_t)256 << 30, GRANULE = (size_t)2 << 20;
static _Atomic CUdeviceptr next_address = 0x7f0000000000;
static _Atomic long create_ns;
static char contexts[2];
/* Reached without a call of the loader's, which is nothing that a driver does to us. */
static _Thread_local __attribute__((tls_model("initial-exec"))) int device, pushed[8], depth;

EXPORT CUresult cuInit(unsigned flags);

EXPORT void null_set_device(int ordinal)
{
    device = ordinal;
}

EXPORT void null_set_create_ns(long ns)
{
    atomic_store(&create_ns, ns);
}

CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ret)
{
    *ret = (CUcontext)(void *)&contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    pushed[depth++ % 8] = device;
    device = (CUcontext)(void *)&contexts[1] == context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ret)
{
    CUresult result = cuCtxGetCurrent(ret);
    device = pushed[--depth % 8];
    return result;
}

CUresult cuCtxGetDevice(CUdevice *ret)
{
    *ret = device;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
    (void)ordinal;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret, CUdevice ordinal)
{
    *ret = (CUcontext)(void *)&contexts[ordinal];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *ret)
{
    *ret = 2;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *ret, CUdevice_attribute attribute, CUdevice ordinal)
{
    (void)ordinal;
    *ret = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *ret, CUdevice ordinal)
{
    (void)ordinal;
    *ret = DEVICE_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = DEVICE_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret, size_t bytes)
{
    return cuMemAddressReserve(ret, bytes, 0, 0, 0);
}

CUresult cuMemAddressReserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr hint,
    unsigned long long flags)
{
    (void)alignment;
    (void)hint;
    (void)flags;
    *ret = atomic_fetch_add(&next_address, (bytes + GRANULE - 1) / GRANULE * GRANULE);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *ret, const CUmemAllocationProp *prop,
    CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *ret = GRANULE;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret, size_t bytes, const CUmemAllocationProp *prop,
    unsigned long long flags)
{
    (void)prop;
    (void)flags;
    long ns = atomic_load_explicit(&create_ns, memory_order_relaxed);
    if (ns)
        nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
    *ret = bytes;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUevent)(void *)&contexts[0];
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *ret)
{
    *ret = (unsigned long long)(uintptr_t)stream;
    return CUDA_SUCCESS;
}

/* hotpath gives each device's streams handles of their own. */
CUresult cuStreamGetCtx(CUstream stream, CUcontext *ret)
{
    *ret = (CUcontext)(void *)&contexts[((uintptr_t)stream >> 16) - 1];
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *ret)
{
    (void)stream;
    *ret = 1; /* takes no part in the legacy stream's order */
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret)
{
    (void)stream;
    *ret = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* The rest has nothing to answer. */
#define NOTHING(symbol, parameters) \
    CUresult symbol parameters      \
    {                               \
        return CUDA_SUCCESS;        \
    }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOTHING(cuCtxSynchronize, (void))
NOTHING(cuCtxSynchronize_v2, (CUcontext context))
NOTHING(cuDevicePrimaryCtxRelease_v2, (CUdevice ordinal))
NOTHING(cuMemFree_v2, (CUdeviceptr address))
NOTHING(cuMemAddressFree, (CUdeviceptr address, size_t bytes))
NOTHING(cuMemRelease, (CUmemGenericAllocationHandle handle))
NOTHING(cuMemMap,
    (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags))
NOTHING(cuMemUnmap, (CUdeviceptr address, size_t bytes))
NOTHING(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count))
NOTHING(cuEventDestroy_v2, (CUevent event))
NOTHING(cuEventRecord, (CUevent event, CUstream stream))
NOTHING(cuEventQuery, (CUevent event))
NOTHING(cuEventSynchronize, (CUevent event))
NOTHING(cuCtxRecordEvent, (CUcontext context, CUevent event))
NOTHING(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))
