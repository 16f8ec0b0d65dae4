/* A driver that offers nothing but cuGetProcAddress and writes down what it is asked: whoever finds a function of it
   any other way does not find it. Built twice: with FAKE_V2 it has only the newer form of that function, else only the
   older. */
#include <stdlib.h>
#include <string.h>

#include "fake_libcuda.h"

static struct fake_query queries[FAKE_QUERIES_MAX];
static int query_count, device_count = 1;
static CUcontext current;

size_t fake_queries(const struct fake_query **ret)
{
    *ret = queries;
    return (size_t)query_count;
}

static CUresult get_version(int *ret)
{
    const char *version = getenv("FAKE_VERSION");
    *ret = version ? atoi(version) : 13000;
    return CUDA_SUCCESS;
}

static CUresult init(unsigned flags)
{
    const char *result = getenv("FAKE_INIT");
    (void)flags;
    return result ? (CUresult)atoi(result) : CUDA_SUCCESS;
}

static CUresult get_count(int *ret)
{
    *ret = getenv("FAKE_NO_DEVICE") ? 0 : device_count;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ret, CUdevice device)
{
    (void)device;
    *ret = (CUcontext)&current;
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *ret)
{
    *ret = current;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *ret, size_t bytes)
{
    *ret = 0x700000000 + bytes;
    return CUDA_SUCCESS;
}

static CUresult fault(CUdeviceptr address)
{
    (void)address;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult copy(CUdeviceptr to, const void *from, size_t bytes)
{
    (void)to, (void)from, (void)bytes;
    return (CUresult)12345;
}

static CUresult ask(const char *symbol, void **ret, int version, cuuint64_t flags)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } known[] = {
        {"cuDriverGetVersion", (void (*)(void))get_version}, {"cuInit", (void (*)(void))init},
        {"cuDeviceGetCount", (void (*)(void))get_count},     {"cuDevicePrimaryCtxRetain", (void (*)(void))retain},
        {"cuCtxGetCurrent", (void (*)(void))get_current},    {"cuCtxSetCurrent", (void (*)(void))set_current},
        {"cuMemAlloc", (void (*)(void))allocate},            {"cuMemFree", (void (*)(void))fault},
        {"cuMemcpyHtoD", (void (*)(void))copy},
    };
    if (query_count < FAKE_QUERIES_MAX) {
        struct fake_query *query = &queries[query_count++];
        strncpy(query->symbol, symbol, sizeof query->symbol - 1);
        query->version = version;
        query->flags = flags;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, symbol) == 0) {
            memcpy(ret, &known[i].function, sizeof *ret);
            return CUDA_SUCCESS;
        }
    }
    *ret = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

#ifdef FAKE_V2
CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUresult result = ask(symbol, ret, version, flags);
    if (status)
        *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return result;
}
#else
CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
    return ask(symbol, ret, version, flags);
}
#endif
