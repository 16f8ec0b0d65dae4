#include "glibc.h"

#include "callers.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "hooks.h"
#include "life.h"
#include "quick.h"
#include "resolve.h"
#include "torch_error.h"

SG_EXPORT int cudaMalloc(void **ret, size_t bytes);
SG_EXPORT int cudaFree(void *address);

/* Of the runtime: cudaErrorMemoryAllocation, cudaErrorInsufficientDriver. */
enum { MODULES_MAX = 64, CUDA_ERROR_MEMORY_ALLOCATION = 2, CUDA_ERROR_INSUFFICIENT_DRIVER = 35 };

/* Only ever grows: an entry is whole before `count` covers it. A module that is unloaded and another one that is loaded
   at its place with another libcudart would be mistaken for it. */
static struct {
    struct known {
        uintptr_t start, end;
        struct sg_module module;
    } list[MODULES_MAX];
    atomic_int count;
} modules;

static enum sg_caller kind_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strncmp(name, "libc10_cuda.so", 14) == 0)
        return SG_CALLER_TORCH;
    if (strncmp(name, "libnccl.so", 10) == 0)
        return SG_CALLER_NCCL;
    return SG_CALLER_OTHER;
}

struct extent {
    ElfW(Addr) base;
    uintptr_t start, end;
};

static int measure(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    struct extent *extent = user;
    if (info->dlpi_addr != extent->base)
        return 0;
    extent->start = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (start < extent->start)
            extent->start = start;
        if (start + segment->p_memsz > extent->end)
            extent->end = start + segment->p_memsz;
    }
    return 1;
}

/* `name` in the library `handle` or what it depends on, but for our own. */
static void *other_than_ours(void *handle, const char *name, const void *ours)
{
    void *found = handle ? sg_dlsym()(handle, name) : NULL;
    return found == ours ? NULL : found;
}

static void *runtime_function(const struct link_map *map, const char *name, const void *ours)
{
    void *found = NULL;
    if (map && map->l_name && map->l_name[0]) {
        void *handle = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        found = other_than_ours(handle, name, ours);
        if (handle)
            dlclose(handle);
    }
    if (!found)
        found = other_than_ours(RTLD_NEXT, name, ours);
    if (!found) {
        void *handle = sg_library_find("libcudart");
        found = other_than_ours(handle, name, ours);
        if (handle)
            dlclose(handle);
    }
    return found;
}

static void remember(const struct extent *extent, const struct sg_module *module)
{
    sg_guard(SG_GUARD_CALLERS);
    int count = atomic_load_explicit(&modules.count, memory_order_relaxed);
    bool known = count == MODULES_MAX;
    for (int i = 0; i < count; i++)
        known |= modules.list[i].start == extent->start;
    if (!known) {
        modules.list[count] = (struct known){extent->start, extent->end, *module};
        atomic_store_explicit(&modules.count, count + 1, memory_order_release);
    }
    sg_unguard(SG_GUARD_CALLERS);
}

static struct sg_module explore(const void *code)
{
    int (*our_malloc)(void **, size_t) = cudaMalloc;
    int (*our_free)(void *) = cudaFree;
    void *ours[2], *theirs[3];
    memcpy(&ours[0], &our_malloc, sizeof ours[0]);
    memcpy(&ours[1], &our_free, sizeof ours[1]);

    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(code, &info, (void **)&map, RTLD_DL_LINKMAP))
        map = NULL;
    theirs[0] = runtime_function(map, "cudaMalloc", ours[0]);
    theirs[1] = runtime_function(map, "cudaFree", ours[1]);
    theirs[2] = runtime_function(map, "cudaGetLastError", NULL);

    struct sg_module module = {.kind = map ? kind_of(map->l_name) : SG_CALLER_OTHER};
    memcpy(&module.malloc, &theirs[0], sizeof theirs[0]);
    memcpy(&module.free, &theirs[1], sizeof theirs[1]);
    memcpy(&module.get_last_error, &theirs[2], sizeof theirs[2]);
    module.quick = sg_quick_runtime(runtime_function(map, "cudaRuntimeGetVersion", NULL));
    struct extent extent = {.base = map ? map->l_addr : 0};
    if (map && module.malloc && module.free && dl_iterate_phdr(measure, &extent))
        remember(&extent, &module);
    return module;
}

const struct sg_module *sg_caller_module(const void *code, struct sg_module *spare)
{
    int count = atomic_load_explicit(&modules.count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        if ((uintptr_t)code >= modules.list[i].start && (uintptr_t)code < modules.list[i].end)
            return &modules.list[i].module;
    }
    *spare = explore(code);
    return spare;
}

enum sg_caller sg_caller_kind(const void *code)
{
    Dl_info info;
    return dladdr(code, &info) && info.dli_fname ? kind_of(info.dli_fname) : SG_CALLER_OTHER;
}

enum sg_caller sg_caller_current(void)
{
    return (enum sg_caller)sg_self.caller;
}

int cudaMalloc(void **ret, size_t bytes)
{
    struct sg_module spare;
    const struct sg_module *module = sg_caller_module(__builtin_return_address(0), &spare);
    if (sg_quick_malloc(module, ret, bytes))
        return CUDA_SUCCESS;
    if (!module->malloc)
        return CUDA_ERROR_INSUFFICIENT_DRIVER;
    int outer = sg_self.caller;
    sg_self.caller = (int)module->kind;
    int result = module->malloc(ret, bytes);
    sg_self.caller = outer;
    sg_self.refused = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        sg_quick_learn(module);
    else if (result == CUDA_ERROR_MEMORY_ALLOCATION)
        sg_torch_ran_out(module, bytes);
    return result;
}

int cudaFree(void *address)
{
    struct sg_module spare;
    const struct sg_module *module = sg_caller_module(__builtin_return_address(0), &spare);
    if (sg_quick_free(module, address))
        return CUDA_SUCCESS;
    if (!module->free)
        return CUDA_ERROR_INSUFFICIENT_DRIVER;
    int outer = sg_self.caller;
    sg_self.caller = (int)module->kind;
    int result = module->free(address);
    sg_self.caller = outer;
    return result;
}
