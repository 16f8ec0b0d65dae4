/* Look-ups that do not meet our own exports.

   glibc's dlsym is found by dlvsym with the oldest version, since its plain name is ours. The next dlsym, which another
   preloaded library may define, is found by glibc's. libcuda's handle is taken with RTLD_NOLOAD: this library never
   loads a driver. */
#include "process/glibc_symver.h"

#include "process/symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "process/hook_table.h"
#include "process/loaded_code.h"
#include "process/locks.h"

/* Functions that were looked up once; 0 or NULL: not yet. */
static struct {
    _Atomic(uintptr_t) dlsym, dlsym_next, dlclose;
    _Atomic(struct libcuda *) libcuda;
} found;

/* The driver's library. The first thread that finds it writes the one entry. */
static struct libcuda {
    void *handle;
    bool mapped; /* its own tables are at hand */
    struct sg_loaded library;
} libcuda;

/* dlvsym is asked for glibc's oldest version of the name: a plain reference to dlsym would be our own. */
SG_UNCHECKED sg_dlsym_fn *sg_dlsym(void)
{
    uintptr_t address = atomic_load_explicit(&found.dlsym, memory_order_relaxed);
    if (!address) {
        address = (uintptr_t)dlvsym(RTLD_NEXT, "dlsym", SG_GLIBC_OLDEST);
        atomic_store_explicit(&found.dlsym, address, memory_order_relaxed);
    }
    sg_dlsym_fn *function;
    memcpy(&function, &address, sizeof function);
    return function;
}

/* The next in the loader's order. With no other preloaded library that is glibc's own. */
SG_UNCHECKED sg_dlsym_fn *sg_dlsym_next(void)
{
    uintptr_t address = atomic_load_explicit(&found.dlsym_next, memory_order_relaxed);
    if (!address) {
        address = (uintptr_t)sg_dlsym()(RTLD_NEXT, "dlsym");
        atomic_store_explicit(&found.dlsym_next, address, memory_order_relaxed);
    }
    sg_dlsym_fn *function;
    memcpy(&function, &address, sizeof function);
    return function;
}

int sg_library_close(void *handle)
{
    uintptr_t address = atomic_load_explicit(&found.dlclose, memory_order_relaxed);
    if (!address) {
        address = (uintptr_t)sg_dlsym()(RTLD_NEXT, "dlclose");
        atomic_store_explicit(&found.dlclose, address, memory_order_relaxed);
    }
    int (*function)(void *);
    memcpy(&function, &address, sizeof function);
    return function(handle);
}

/* Kept once found: the CUDA runtime doesn't unload the driver either. */
static const struct libcuda *symbols_libcuda(void)
{
    const struct libcuda *known = atomic_load_explicit(&found.libcuda, memory_order_acquire);
    if (known)
        return known;
    struct libcuda now = {.handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)};
    if (!now.handle)
        return NULL;
    now.mapped = sg_loaded_of(now.handle, &now.library);
    sg_process_lock(SG_LOCK_REAL);
    bool first = !atomic_load_explicit(&found.libcuda, memory_order_relaxed);
    if (first) {
        libcuda = now;
        atomic_store_explicit(&found.libcuda, &libcuda, memory_order_release);
    }
    sg_process_unlock(SG_LOCK_REAL);
    if (!first)
        sg_library_close(now.handle);
    return &libcuda;
}

bool sg_cuda_loaded(void)
{
    return symbols_libcuda() != NULL;
}

/* Libcuda's own tables are read where nothing interposes dlsym. No lock of the loader's is taken then, which matters in
   a runtime's first call. */
void *sg_cuda_symbol(const char *name)
{
    const struct libcuda *known = symbols_libcuda();
    void *symbol = NULL;
    if (!known)
        return NULL;
    sg_dlsym_fn *next = sg_dlsym_next();
    if (next == sg_dlsym() && known->mapped && sg_loaded_symbol(&known->library, "cuInit", name, &symbol))
        return symbol;
    symbol = next(known->handle, name);
    /* A library that answers dlsym may mean a function of its own and find ours, which comes first. */
    return sg_hook_is_ours(symbol) ? sg_dlsym()(known->handle, name) : symbol;
}

struct search {
    const char *prefix;
    char path[4096];
};

/* The end of a path that has as many folders as the prefix. For example, /a/mooncake/engine.so ends in engine.so for
   "libcuda", and in mooncake/engine.so for "mooncake/engine.". */
static const char *end_of_path(const char *path, const char *prefix)
{
    int folders = 0;
    for (const char *at = prefix; *at; at++)
        folders += *at == '/';
    for (const char *at = path + strlen(path); at > path; at--)
        if (at[-1] == '/' && folders-- == 0)
            return at;
    return path;
}

/* Not 0 if a library's file name begins with the prefix. Then its whole path is kept, for a dlopen() that loads
   nothing. */
static int match_library(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    struct search *search = user;
    const char *name = info->dlpi_name ? end_of_path(info->dlpi_name, search->prefix) : NULL;
    if (!name || strncmp(name, search->prefix, strlen(search->prefix)) != 0)
        return 0;
    size_t length = strlen(info->dlpi_name);
    if (length >= sizeof search->path)
        return 0;
    memcpy(search->path, info->dlpi_name, length + 1);
    return 1;
}

void *sg_library_find(const char *prefix)
{
    struct search search = {.prefix = prefix};
    return dl_iterate_phdr(match_library, &search) ? dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
}

bool sg_library_loaded(const char *prefix)
{
    struct search search = {.prefix = prefix};
    return dl_iterate_phdr(match_library, &search) != 0;
}
