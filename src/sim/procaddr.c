/* cuGetProcAddress: every answer comes from entry.def and unsupported.def. */
#include <string.h>

#include "sim.h"

/* One function for each, as a driver has. */
#define UNSUPPORTED(name, version) \
    static CUresult name##_##version(void) \
    { \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
#include "unsupported.def"

static const struct entry {
    const char *name;
    int version;
    void (*function)(void);
    void (*per_thread)(void);
} entries[] = {
#define ENTRY(name, symbol, version) {#name, version, (void (*)(void))symbol, NULL},
#define ENTRY_STREAM(name, symbol, version, variant) \
    {#name, version, (void (*)(void))symbol, (void (*)(void))variant},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(name, version) {#name, version, (void (*)(void))name##_##version, NULL},
#include "unsupported.def"
};

/* The per-thread variants came with CUDA 7.0. */
enum { PER_THREAD_SINCE = 7000 };

static CUdriverProcAddressQueryResult look_up(const char *name, int version, bool per_thread, void (**ret)(void))
{
    const struct entry *best = NULL;
    int driver = sim_driver_version();
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++) {
        const struct entry *entry = &entries[i];
        if (strcmp(entry->name, name) != 0 || entry->version > driver)
            continue;
        if (entry->version > version) {
            if (status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
                status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        } else if (!best || entry->version > best->version) {
            best = entry;
            status = CU_GET_PROC_ADDRESS_SUCCESS;
        }
    }
    *ret = !best ? NULL
           : per_thread && best->per_thread && version >= PER_THREAD_SINCE ? best->per_thread : best->function;
    return status;
}

/* The rules are those of the driver API's reference: an unknown name, or one that the version does not have, is a
   success with a NULL address. */
static CUresult get_proc_address(const char *name, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *ret_status)
{
    if (!name || !ret || version > sim_driver_version() ||
        flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ||
        flags == (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    void (*found)(void);
    CUdriverProcAddressQueryResult status =
        look_up(name, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found);
    memcpy(ret, &found, sizeof found);
    if (ret_status)
        *ret_status = status;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    SIM_ENTER(cuGetProcAddress);
    return get_proc_address(symbol, function, version, flags, NULL);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    SIM_ENTER(cuGetProcAddress_v2);
    return get_proc_address(symbol, function, version, flags, status);
}

/* What code compiled for per-thread default streams calls: "default" means per thread there. */
CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    SIM_ENTER(cuGetProcAddress_v2);
    if (flags == CU_GET_PROC_ADDRESS_DEFAULT)
        flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    return get_proc_address(symbol, function, version, flags, status);
}
