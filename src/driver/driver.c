#include "driver.h"

#include <stddef.h>
#include <string.h>

/* The rows with their symbols and the places of their pointers in the table. */
enum need { REQUIRED, VMM, OPTIONAL };

static const struct {
    const char *symbol;
    enum need need;
    size_t offset;
} calls[] = {
#define CALL(name, symbol, need, parameters) {#symbol, need, offsetof(struct sg_driver, name)},
#include "calls.def"
};

enum { CALL_COUNT = sizeof calls / sizeof *calls };

/* Pointers to functions are copied as bytes: ISO C converts none from void *. */
const char *sg_driver_load(struct sg_driver *driver, void *(*lookup)(void *user, const char *symbol), void *user)
{
    const char *missing = NULL;
    for (int i = 0; i < CALL_COUNT; i++) {
        void *function = lookup(user, calls[i].symbol);
        memcpy((char *)driver + calls[i].offset, &function, sizeof function);
        if (!function && calls[i].need == REQUIRED && !missing)
            missing = calls[i].symbol;
    }
    return missing;
}

bool sg_driver_has_vmm(const struct sg_driver *driver)
{
    for (int i = 0; i < CALL_COUNT; i++) {
        void *function;
        memcpy(&function, (const char *)driver + calls[i].offset, sizeof function);
        if (!function && calls[i].need == VMM)
            return false;
    }
    return true;
}

bool sg_driver_is_sticky(CUresult result)
{
    switch (result) {
#define STICKY(name) case name:
#include "sticky.def"
        return true;
    default:
        return false;
    }
}

/* True if the calling thread's context, which mem_info() is about, is of the device. A driver without that call is taken at
   its word. */
static bool driver_is_current(const struct sg_driver *driver, int ordinal)
{
    CUdevice current;
    return !driver->ctx_get_device || (driver->ctx_get_device(&current) == CUDA_SUCCESS && current == ordinal);
}

/* cuMemGetInfo speaks of another total than cuDeviceTotalMem where a quota is kept, by MPS, a shim or vGPU, and on some
   drivers by a little. Where it is less than the device has, the rest is not to be had, and counts as in use. Where it is
   more, that is the quota. */
bool sg_driver_used_memory(const struct sg_driver *driver, int ordinal, uint64_t total, uint64_t alike, uint64_t *ret)
{
    size_t free_bytes, said;
    if (driver->mem_info(&free_bytes, &said) != CUDA_SUCCESS || (said != total && !driver_is_current(driver, ordinal)))
        return false;
    /* Totals that differ by a little are two figures for one card; then those of one call belong together. */
    uint64_t most = total > said ? total : said, least = total < said ? total : said;
    if (most - least <= alike)
        total = said;
    *ret = total > free_bytes ? total - free_bytes : 0;
    return true;
}

CUresult sg_driver_synchronize_pushed(const struct sg_driver *driver, CUcontext context)
{
    CUcontext popped;
    CUresult result = driver->ctx_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->ctx_synchronize();
    (void)driver->ctx_pop(&popped);
    return result;
}
