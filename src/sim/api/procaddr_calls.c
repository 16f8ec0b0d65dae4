/* The functions of the driver by name and version: the answers of cuGetProcAddress and of dlsym. Every one comes from
    entry.def, unsupported.def and twin.def. */
#include <string.h>

#include "api/exports.h"
#include "api/undone.h"
#include "calls.h"

static const struct sim_export entries[] = {
#define ENTRY(name, symbol, version) {#name, version, (sim_driver_fn *)symbol, NULL},
#define ENTRY_STREAM(name, symbol, version, variant) \
    {#name, version, (sim_driver_fn *)symbol, (sim_driver_fn *)variant},
#include "entry.def"
#undef ENTRY
#undef ENTRY_STREAM
#define UNSUPPORTED(name, symbol, version) {#name, version, (sim_driver_fn *)sim_undone_##symbol, NULL},
#define UNSUPPORTED_STREAM(name, symbol, version, variant) \
    {#name, version, (sim_driver_fn *)sim_undone_##symbol, (sim_driver_fn *)sim_undone_##variant},
#include "unsupported.def"
#define TWIN(name, symbol, version) {#name, version, (sim_driver_fn *)sim_undone_##symbol, NULL},
#include "twin.def"
};

enum {
    ENTRIES = sizeof entries / sizeof *entries,
    PER_THREAD_SINCE = 7000, /* the per-thread forms came with CUDA 7.0 */
};

/* A name with per-thread forms is answered by those alone where they are asked for. */
static bool procaddr_has_per_thread(const char *name, unsigned driver)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].per_thread && entries[i].version <= driver && strcmp(entries[i].name, name) == 0)
            return true;
    return false;
}

/* A version above the driver's asks for the driver's newest form, and so does -1. */
static CUdriverProcAddressQueryResult procaddr_find(const char *name, unsigned version, bool per_thread,
    sim_driver_fn **ret)
{
    unsigned driver = (unsigned)sim_driver_version(), newest = 0;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    bool own = per_thread && procaddr_has_per_thread(name, driver);
    *ret = NULL;
    for (unsigned i = 0; i < ENTRIES; i++) {
        const struct sim_export *entry = &entries[i];
        unsigned since = own && entry->version < PER_THREAD_SINCE ? PER_THREAD_SINCE : entry->version;
        if (entry->version > driver || strcmp(entry->name, name) != 0 || (own && !entry->per_thread))
            continue;
        if (since <= version && entry->version >= newest) {
            newest = entry->version;
            *ret = own ? entry->per_thread : entry->legacy;
        }
        status = *ret ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    return status;
}

static CUresult procaddr_answer(const char *name, int version, cuuint64_t flags, sim_driver_fn **ret,
    CUdriverProcAddressQueryResult *ret_status)
{
    if (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    if (!name)
        sim_null_read();
    *ret_status = procaddr_find(name, (unsigned)version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, ret);
    return CUDA_SUCCESS;
}

/* The form of CUDA 11.3 says that there is no such function by an error, and leaves *ret. */
CUresult cuGetProcAddress(const char *symbol, void **ret, int version, cuuint64_t flags)
{
    SIM_ENTER(cuGetProcAddress);
    sim_driver_fn *found = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult result = procaddr_answer(symbol, version, flags, &found, &status);
    if (result != CUDA_SUCCESS || !found)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_FOUND;
    if (!ret)
        sim_null_read();
    memcpy(ret, &found, sizeof found);
    return CUDA_SUCCESS;
}

/* That of CUDA 12 does so by a status and a NULL address. */
CUresult cuGetProcAddress_v2(const char *symbol, void **ret, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    SIM_ENTER(cuGetProcAddress_v2);
    sim_driver_fn *found = NULL;
    CUdriverProcAddressQueryResult how;
    CUresult result = procaddr_answer(symbol, version, flags, &found, &how);
    if (result != CUDA_SUCCESS)
        return result;
    if (!ret)
        sim_null_read();
    memcpy(ret, &found, sizeof found);
    if (status)
        *status = how;
    return CUDA_SUCCESS;
}

/* Exports follow the settings from the moment at which the library is loaded. */
__attribute__((constructor)) static void exports_follow_settings(void)
{
    sim_exports_set(entries, ENTRIES);
    sim_exports_follow(sim_driver_version());
}
