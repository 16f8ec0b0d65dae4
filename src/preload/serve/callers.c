/* The modules that call, kept by address range.

   An entry holds as long as no library is unloaded. `unloading` counts dlclose() before and after, and an entry of
   another count is looked at anew. So a look-up takes no lock. The first call of a module takes the loader's lock with
   all signals held off, because a handler that allocates would wait for ever. */
#include "process/glibc_symver.h"

#include "serve/callers.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "process/hooks.h"
#include "process/interposers.h"
#include "process/loaded_code.h"
#include "process/process.h"
#include "serve/fast_path.h"
#include "process/symbols.h"
#include "report/refusals.h"
#include "torch/torch_switch.h"
#include "track/torch_mode.h"
#include "torch/torch_oom.h"
#include "torch/torch_peaks.h"
#include "torch/torch_segments.h"
#include "torch/torch_sent.h"

SG_EXPORT int cudaMalloc(void **ret, size_t bytes);
SG_EXPORT int cudaFree(void *address);
SG_EXPORT int dlclose(void *handle);

/* The runtime's cudaErrorMemoryAllocation, cudaErrorCudartUnloading and cudaErrorInsufficientDriver. */
enum {
    MODULES_MAX = 64,
    CUDA_ERROR_MEMORY_ALLOCATION = 2,
    CUDA_ERROR_CUDART_UNLOADING = 4,
    CUDA_ERROR_INSUFFICIENT_DRIVER = 35
};

/* An entry is whole before `count` covers it, and is good until a library is unloaded. Another module may lie in its
   place then, or its runtime may have gone. A new finding never overwrites an entry in use: it is equal, or the
   module that used it is gone. */
struct modules {
    struct known {
        uintptr_t start, end;
        struct sg_module module;
        _Atomic unsigned as_of; /* of `unloading` */
    } list[MODULES_MAX];
    atomic_int count;
};
static struct modules modules, callers; /* those that call the runtime, and the driver: of these the kind alone */
static atomic_uint unloading = 1; /* twice as many as there were: as each begins and ends. From 1: no entry is as of 0 */

static const struct named {
    const char *prefix;
    enum sg_caller kind;
} names[] = {
#define MODULE(prefix, caller, shares, unless) {prefix, SG_CALLER_##caller},
#include "process/modules.def"
};

/* The kind of a module by its file name, from modules.def. */
static enum sg_caller kind_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(name, names[i].prefix, strlen(names[i].prefix)) == 0)
            return names[i].kind;
    }
    return SG_CALLER_OTHER;
}

/* `name` in the library `handle` or what it depends on, but for our own. */
static void *other_than_ours(void *handle, const char *name, const void *ours)
{
    void *found = handle ? sg_dlsym()(handle, name) : NULL;
    return found == ours ? NULL : found;
}

/* `name` of the caller's own runtime, of what the loader finds next, or of any runtime that is loaded. A caller before
   ours that defines the name itself is no runtime. It hands on, and its own function would come back to ours for ever. */
static void *runtime_function(const struct link_map *map, const char *name, const void *ours)
{
    void *found = NULL;
    if (map && map->l_name && map->l_name[0]) {
        void *handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        found = other_than_ours(handle, name, ours);
        if (handle)
            sg_library_close(handle);
    }
    if (found && ours && sg_interposer_same_library(found, map->l_ld) && sg_interposer_is_before(map))
        found = NULL;
    if (!found)
        found = other_than_ours(RTLD_NEXT, name, ours);
    if (!found) {
        void *handle = sg_library_find("libcudart");
        found = other_than_ours(handle, name, ours);
        if (handle)
            sg_library_close(handle);
    }
    return found;
}

/* `name` as the caller's call would find it if this library were not there. *is_handed_on: another preloaded library has
   it, and must get every call. */
static void *callers_next(const struct link_map *map, const char *name, const void *ours, bool *is_handed_on)
{
    void *next = sg_interposer_next(name);
    if (!next)
        return runtime_function(map, name, ours);
    if (!map || !sg_interposer_same_library(next, map->l_ld))
        *is_handed_on = true;
    return next;
}

/* 1 where libc comes first in the loader's order, 2 where this library does. */
static int first_of_ours_and_libc(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (slash && strcmp(slash, "/libc.so.6") == 0)
        return 1;
    return info->dlpi_addr == *(const uintptr_t *)user ? 2 : 0;
}

/* True if what is found out about a module can be kept. The program's dlclose is ours then: not where this library was
   loaded by the running program. In a forked child another thread may have held the loader's lock for good, which
   dl_iterate_phdr() needs. */
static bool sees_unloads(void)
{
    int (*own)(void *) = dlclose;
    const void *code;
    struct sg_loaded ours;
    memcpy(&code, &own, sizeof code);
    return !sg_process_over() && sg_loaded_at(code, &ours) && dl_iterate_phdr(first_of_ours_and_libc, &ours.base) == 2;
}

static bool module_is_same(const struct known *entry, const struct sg_loaded *extent, const struct sg_module *module)
{
    return entry->end == extent->end && entry->module.kind == module->kind && entry->module.malloc == module->malloc &&
        entry->module.free == module->free && entry->module.get_last_error == module->get_last_error &&
        entry->module.fast_path == module->fast_path;
}

/* `unloads`: before the module was looked at. A signal handler may allocate while the thread that it interrupts is
   here. A module that cannot be remembered now is looked at again by the next call. */
static void callers_remember(struct modules *known, const struct sg_loaded *extent, const struct sg_module *module,
    unsigned unloads)
{
    if (!sg_process_lock_try(SG_LOCK_CALLERS))
        return;
    int count = atomic_load_explicit(&known->count, memory_order_relaxed), at = 0;
    while (at < count && known->list[at].start != extent->start)
        at++;
    struct known *entry = &known->list[at];
    if (at < MODULES_MAX && (at == count || !module_is_same(entry, extent, module))) {
        atomic_store(&entry->as_of, 0);
        entry->start = extent->start;
        entry->end = extent->end;
        entry->module = *module;
    }
    if (at < MODULES_MAX)
        atomic_store_explicit(&entry->as_of, unloads, memory_order_release);
    if (at == count && at < MODULES_MAX)
        atomic_store_explicit(&known->count, count + 1, memory_order_release);
    sg_process_unlock(SG_LOCK_CALLERS);
}

/* The entry of the module that has `code`; no lock, since entries below `count` never change. */
static inline const struct known *callers_find(const struct modules *known, const void *code, unsigned unloads)
{
    int count = atomic_load_explicit(&known->count, memory_order_acquire);
    for (const struct known *entry = known->list, *end = entry + count; entry != end; entry++) {
        if (atomic_load_explicit(&entry->as_of, memory_order_acquire) == unloads && (uintptr_t)code >= entry->start &&
            (uintptr_t)code < entry->end)
            return entry;
    }
    return NULL;
}

static __attribute__((noinline)) struct sg_module callers_explore(const void *code)
{
    unsigned unloads = atomic_load(&unloading);
    int (*our_malloc)(void **, size_t) = cudaMalloc;
    int (*our_free)(void *) = cudaFree;
    void *ours[2], *theirs[3];
    memcpy(&ours[0], &our_malloc, sizeof ours[0]);
    memcpy(&ours[1], &our_free, sizeof ours[1]);

    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(code, &info, (void **)&map, RTLD_DL_LINKMAP))
        map = NULL;
    bool is_handed_on = false;
    theirs[0] = callers_next(map, "cudaMalloc", ours[0], &is_handed_on);
    theirs[1] = callers_next(map, "cudaFree", ours[1], &is_handed_on);
    theirs[2] = runtime_function(map, "cudaGetLastError", NULL);

    struct sg_module module = {.kind = map ? kind_of(map->l_name) : SG_CALLER_OTHER};
    memcpy(&module.malloc, &theirs[0], sizeof theirs[0]);
    memcpy(&module.free, &theirs[1], sizeof theirs[1]);
    memcpy(&module.get_last_error, &theirs[2], sizeof theirs[2]);
    module.fast_path = sg_fast_path_allows(runtime_function(map, "cudaRuntimeGetVersion", NULL)) && !is_handed_on;
    struct sg_loaded library;
    if (map && module.malloc && module.free && sees_unloads() && sg_loaded_at(code, &library))
        callers_remember(&modules, &library, &module, unloads);
    return module;
}

/* A handler that interrupts the thread while it takes the loader's lock, and allocates, would wait for that lock
   forever. So none comes while a module is looked at. */
static void callers_hold_signals(sigset_t *ret_before)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, ret_before);
}

static void callers_release_signals(const sigset_t *before)
{
    (void)sigprocmask(SIG_SETMASK, before, NULL);
}

static inline const struct sg_module *known_module(const void *code)
{
    const struct known *entry = callers_find(&modules, code, atomic_load_explicit(&unloading, memory_order_acquire));
    return entry ? &entry->module : NULL;
}

/* Without a lock where the module is known. Else it is explored with signals held off, and *spare has the finding even
   where it can't be kept. */
const struct sg_module *sg_caller_module(const void *code, struct sg_module *spare)
{
    const struct sg_module *module = known_module(code);
    if (module)
        return module;
    sigset_t before;
    callers_hold_signals(&before);
    *spare = callers_explore(code);
    callers_release_signals(&before);
    return spare;
}

/* In a forked child the one lock of the loader's that fork() does not make anew may be held for good. */
static enum sg_caller explore_kind_in_child(const void *code)
{
    Dl_info info;
    return dladdr(code, &info) && info.dli_fname ? kind_of(info.dli_fname) : SG_CALLER_OTHER;
}

/* The runtime may call the driver with locks of its own held, so that lock is taken alone. */
static enum sg_caller explore_kind(const void *code, unsigned unloads)
{
    struct sg_loaded library;
    if (sg_process_over())
        return explore_kind_in_child(code);
    if (!sg_loaded_at(code, &library))
        return SG_CALLER_OTHER;
    const struct sg_module module = {.kind = kind_of(library.path)};
    if (sees_unloads())
        callers_remember(&callers, &library, &module, unloads);
    return module.kind;
}

enum sg_caller sg_caller_kind(const void *code)
{
    unsigned unloads = atomic_load(&unloading);
    const struct known *entry = callers_find(&callers, code, unloads);
    if (entry)
        return entry->module.kind;
    sigset_t before;
    callers_hold_signals(&before);
    enum sg_caller kind = explore_kind(code, unloads);
    callers_release_signals(&before);
    return kind;
}

enum sg_caller sg_caller_current(void)
{
    return (enum sg_caller)sg_self.caller;
}

/* PyTorch's cache may hold idle memory, in pools that are gone or on other streams. It gives that back when asked. */
static int malloc_of_torch_failed(const struct sg_module *module, void **ret, size_t bytes)
{
    int result = CUDA_ERROR_MEMORY_ALLOCATION;
    sg_torch_retries();
    if (!sg_self.torch_cached && sg_torch_gives_back()) {
        int outer = sg_self.caller;
        sg_self.caller = (int)module->kind;
        result = module->malloc(ret, bytes);
        sg_self.caller = outer;
        sg_self.pending_error = CUDA_SUCCESS;
    }
    if (result == CUDA_ERROR_MEMORY_ALLOCATION) {
        sg_refusals_of_torch();
        sg_torch_ran_out(module->get_last_error, bytes);
    } else if (module->get_last_error) {
        (void)module->get_last_error(); /* of the first */
    }
    return result;
}

/* Where the fast path is not taken. Apart, so that the variables cost the others nothing. */
static __attribute__((noinline)) int malloc_the_long_way(const struct sg_module *module, void **ret, size_t bytes)
{
    if (!module->malloc)
        return CUDA_ERROR_INSUFFICIENT_DRIVER;
    int outer = sg_self.caller;
    sg_self.caller = (int)module->kind;
    sg_self.reached = false;
    int result = module->malloc(ret, bytes);
    sg_self.caller = outer;
    sg_self.pending_error = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        sg_fast_path_prepare(module);
        if (!sg_self.reached && bytes && !sg_process_is_passthrough())
            sg_interposer_hides();
    }
    if (result == CUDA_ERROR_MEMORY_ALLOCATION && module->kind == SG_CALLER_TORCH)
        result = malloc_of_torch_failed(module, ret, bytes);
    return result;
}

static __attribute__((noinline)) int free_the_long_way(const struct sg_module *module, void *address)
{
    if (!module->free)
        return CUDA_ERROR_INSUFFICIENT_DRIVER;
    int outer = sg_self.caller;
    sg_self.caller = (int)module->kind;
    int result = module->free(address);
    sg_self.caller = outer;
    /* Once the driver has ended. PyTorch would throw, out of the destructor of what it has sent to other processes. */
    bool late = result == CUDA_ERROR_CUDART_UNLOADING && sg_process_owns((CUdeviceptr)(uintptr_t)address);
    return late ? CUDA_SUCCESS : result;
}

static inline int malloc_for(const struct sg_module *module, void **ret, size_t bytes)
{
    if (!sg_caller_passes(module->kind) && sg_fast_malloc(module, ret, bytes))
        return CUDA_SUCCESS;
    return malloc_the_long_way(module, ret, bytes);
}

static inline int free_for(const struct sg_module *module, void *address)
{
    return sg_fast_free(module, address) ? CUDA_SUCCESS : free_the_long_way(module, address);
}

/* A module that calls for the first time, or cannot be remembered. */
static __attribute__((noinline)) int malloc_for_unknown(const void *code, void **ret, size_t bytes)
{
    struct sg_module spare;
    return malloc_for(sg_caller_module(code, &spare), ret, bytes);
}

static __attribute__((noinline)) int free_for_unknown(const void *code, void *address)
{
    struct sg_module spare;
    return free_for(sg_caller_module(code, &spare), address);
}

/* Where PyTorch's cache gets segments beside the tensors that come here, by itself or by an allocator of a pool's. */
static __attribute__((noinline)) int malloc_beside_cache(const void *code, void **ret, size_t bytes)
{
    struct sg_module spare;
    const struct sg_module *module = sg_caller_module(code, &spare);
    bool cached = sg_self.torch_cached;
    bool segment = cached || (module->kind == SG_CALLER_TORCH && sg_torch_switched());
    sg_self.torch_cached = segment;
    segment = segment && !sg_thread_inside();
    if (segment)
        sg_torch_peaks_end();
    int result = malloc_for(module, ret, bytes);
    sg_self.torch_cached = cached;
    if (result == CUDA_SUCCESS && segment)
        sg_torch_segment_made(*ret, bytes);
    return result;
}

static __attribute__((noinline)) int free_beside_cache(const void *code, void *address)
{
    struct sg_module spare;
    bool cached = sg_self.torch_cached, segment = sg_torch_is_segment(address);
    if (segment)
        sg_torch_peaks_end();
    sg_self.torch_cached = segment && sg_torch_segment_gone(address);
    int result = free_for(sg_caller_module(code, &spare), address);
    sg_self.torch_cached = cached;
    if (segment)
        sg_torch_peaks_begin();
    return result;
}

static inline bool is_beside_cache(void)
{
    return __builtin_expect(atomic_load_explicit(&sg_torch_segments_seen, memory_order_relaxed), 0);
}

/* The name that programs call. Nearly every call is a table look-up, a few comparisons and the core. */
int cudaMalloc(void **ret, size_t bytes)
{
    const void *code = __builtin_return_address(0);
    if (is_beside_cache())
        return malloc_beside_cache(code, ret, bytes);
    const struct sg_module *module = known_module(code);
    return module ? malloc_for(module, ret, bytes) : malloc_for_unknown(code, ret, bytes);
}

/* Copies that stand for the block in other processes go with it (torch_sent.h). */
int cudaFree(void *address)
{
    const void *code = __builtin_return_address(0);
    if (__builtin_expect(atomic_load_explicit(&sg_torch_sent_copies, memory_order_relaxed) != 0, 0))
        sg_torch_sent_freed(address);
    if (is_beside_cache())
        return free_beside_cache(code, address);
    const struct sg_module *module = known_module(code);
    return module ? free_for(module, address) : free_for_unknown(code, address);
}

/* Counted before and after: a look-up in between may see the old state. */
int dlclose(void *handle)
{
    atomic_fetch_add(&unloading, 1);
    int result = sg_library_close(handle);
    atomic_fetch_add(&unloading, 1);
    return result;
}
