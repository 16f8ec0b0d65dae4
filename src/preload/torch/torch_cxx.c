/* Seven symbols, looked up at the first need and kept if all are there. */
#include "process/glibc_symver.h"

#include "torch/torch_cxx.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <string.h>

#include "process/locks.h"
#include "process/symbols.h"

static struct sg_torch_cxx cxx;
static atomic_int cxx_known; /* 0 not looked for, 1 all there, 2 some missing */

/* Resolves a name as the loader does for that library: the process's first definition, else the library's own. */
static void *cxx_resolve(const char *library, const char *name)
{
    void *found = sg_dlsym()(RTLD_DEFAULT, name);
    void *handle = found ? NULL : sg_library_find(library);
    if (handle) {
        found = sg_dlsym()(handle, name);
        sg_library_close(handle);
    }
    return found;
}

/* c10::Error::Error(c10::SourceLocation, std::string) */
#define CONSTRUCTOR "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

/* All or nothing: an exception that can't be made whole is not begun. */
static bool cxx_look_up(struct sg_torch_cxx *ret)
{
    static const struct {
        const char *library, *name;
    } wanted[] = {
        {"libc10.so", "__cxa_allocate_exception"},
        {"libc10.so", "_Znwm"},
        {"libc10.so", "_ZdlPv"},
        {"libc10.so", "__cxa_throw"},
        {"libc10_cuda.so", "_ZTVN3c1016OutOfMemoryErrorE"},
        {"libc10_cuda.so", "_ZTIN3c1016OutOfMemoryErrorE"},
    };
    enum { COUNT = sizeof wanted / sizeof *wanted };
    void *found[COUNT];
    for (int i = 0; i < COUNT; i++) {
        found[i] = cxx_resolve(wanted[i].library, wanted[i].name);
        if (!found[i])
            return false;
    }
    memcpy(&ret->allocate, &found[0], sizeof found[0]);
    memcpy(&ret->new, &found[1], sizeof found[1]);
    memcpy(&ret->delete, &found[2], sizeof found[2]);
    memcpy(&ret->throw, &found[3], sizeof found[3]);
    ret->vtable = found[4];
    ret->type = found[5];
    void *constructor = cxx_resolve("libc10.so", CONSTRUCTOR);
    memcpy(&ret->construct, &constructor, sizeof constructor);
    return constructor;
}

/* Two threads that look at once find the same, and the first one's is kept: it may be in use by then. */
const struct sg_torch_cxx *sg_torch_cxx(void)
{
    int known = atomic_load_explicit(&cxx_known, memory_order_acquire);
    if (!known) {
        struct sg_torch_cxx found = {0};
        known = cxx_look_up(&found) ? 1 : 2;
        sg_process_lock(SG_LOCK_REAL);
        if (!atomic_load_explicit(&cxx_known, memory_order_relaxed)) {
            cxx = found;
            atomic_store_explicit(&cxx_known, known, memory_order_release);
        }
        sg_process_unlock(SG_LOCK_REAL);
    }
    return known == 1 ? &cxx : NULL;
}

void *sg_torch_new(size_t bytes)
{
    return sg_torch_cxx() ? cxx.new(bytes) : NULL;
}

void sg_torch_delete(void *memory)
{
    cxx.delete(memory);
}
