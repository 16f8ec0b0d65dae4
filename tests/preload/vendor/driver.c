/* A driver that answers every name and does nothing: NVIDIA's own runtimes look all of theirs up at their first call.
   symbols.c has what it exports of the calls that are hooked. */
#include <stddef.h>
#include <string.h>

#include "cuda_abi.h"

#define SHOWN __attribute__((visibility("default")))
enum { VERSION = 13050 };
enum threads { ANY, LEGACY, PER_THREAD };

#define HOOK(symbol, base, version, threads, parameters) int vendor_##symbol(void) __asm__(#symbol);
#include "process/hooks.def"

static const struct row {
    const char *base;
    int version;
    enum threads threads;
    int (*function)(void);
} rows[] = {
#define HOOK(symbol, base, version, threads, parameters) {#base, version, threads, vendor_##symbol},
#include "process/hooks.def"
};

/* Calls that no table has: two under names of their own, one that is the later form of a call that is hooked. */
SHOWN long cuStreamOfTomorrow(long a, long b);
SHOWN long cuStreamOfTomorrow(long a, long b)
{
    return 10 * a + b;
}

SHOWN long cuMulticastBindTomorrow(long a, long b);
SHOWN long cuMulticastBindTomorrow(long a, long b)
{
    return 100 * a + b;
}

SHOWN int cuLaunchHostFunc_v9(void);
SHOWN int cuLaunchHostFunc_v9(void)
{
    return CUDA_SUCCESS;
}

/* Nobody has its name but by vendor_other. */
static int other(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

SHOWN int (*const vendor_other)(void) = other;

SHOWN CUresult cuInit(unsigned flags);
SHOWN CUresult cuInit(unsigned flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

SHOWN CUresult cuDriverGetVersion(int *ret);
SHOWN CUresult cuDriverGetVersion(int *ret)
{
    *ret = VERSION;
    return CUDA_SUCCESS;
}

static CUresult count_devices(int *ret)
{
    *ret = 1;
    return CUDA_SUCCESS;
}

/* How many names have been asked for. */
SHOWN int vendor_asked;

/* How calls that are hooked are given: as functions that nothing exports; with an error. */
SHOWN int vendor_hides, vendor_refuses;

#define GIVE(ret, function) memcpy(ret, &(void (*)(void)){(void (*)(void))(function)}, sizeof(void *))

SHOWN CUresult get_proc_address(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status) __asm__("cuGetProcAddress_v2");
CUresult get_proc_address(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    enum threads threads = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? PER_THREAD : LEGACY;
    const struct row *best = NULL;
    vendor_asked++;
    if (!ret)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (strcmp(row->base, symbol) == 0 && row->version <= version &&
            (row->threads == ANY || row->threads == threads) && (!best || row->version > best->version))
            best = row;
    }
    GIVE(ret, other);
    if (best)
        GIVE(ret, vendor_hides ? other : best->function);
    if (strcmp(symbol, "cuInit") == 0)
        GIVE(ret, cuInit);
    if (strcmp(symbol, "cuDriverGetVersion") == 0)
        GIVE(ret, cuDriverGetVersion);
    if (strcmp(symbol, "cuDeviceGetCount") == 0)
        GIVE(ret, count_devices);
    if (strcmp(symbol, "cuStreamOfTomorrow") == 0)
        GIVE(ret, cuStreamOfTomorrow);
    if (strcmp(symbol, "cuMulticastBindTomorrow") == 0)
        GIVE(ret, cuMulticastBindTomorrow);
    if (strcmp(symbol, "cuLaunchHostFunc") == 0 && version > VERSION)
        GIVE(ret, cuLaunchHostFunc_v9);
    if (status)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    return vendor_refuses ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
