#include "process/glibc_symver.h"

#include "process/interposers.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "process/environment.h"
#include "process/process.h"
#include "process/symbols.h"

extern const char __ehdr_start[] __attribute__((visibility("hidden")));

/* The library that an address lies in; NULL: none. */
static const struct link_map *interposer_library(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    return address && dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map : NULL;
}

/* The file's name. */
static const char *interposer_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* None: this library, the program itself, and a CUDA runtime. A runtime is known by its file's name, or by its symbols'
   versions, which NVIDIA's have whatever the file is called. */
static bool is_interposer(const struct link_map *map)
{
    if (!map || !map->l_name || !*map->l_name || map == interposer_library(__ehdr_start) ||
        strncmp(interposer_base(map->l_name), "libcudart.", strlen("libcudart.")) == 0)
        return false;
    const ElfW(Dyn) *entry = map->l_ld;
    while (entry->d_tag != DT_NULL && entry->d_tag != DT_VERDEF)
        entry++;
    return entry->d_tag == DT_NULL;
}

void *sg_interposer_next(const char *name)
{
    void *next = sg_dlsym()(RTLD_NEXT, name);
    return is_interposer(interposer_library(next)) ? next : NULL;
}

bool sg_interposer_same_library(const void *one, const void *other)
{
    const struct link_map *map = interposer_library(one);
    return map && map == interposer_library(other);
}

/* From ours back to the program: nothing there is unloaded where this library is preloaded. */
bool sg_interposer_is_before(const struct link_map *library)
{
    const struct link_map *map = interposer_library(__ehdr_start);
    while (map && map != library)
        map = map->l_prev;
    return map && map != interposer_library(__ehdr_start);
}

static bool is_interposed(const char *name)
{
    return is_interposer(interposer_library(sg_dlsym()(RTLD_DEFAULT, name))) || sg_interposer_next(name);
}

bool sg_interposer_of_runtime(void)
{
    return is_interposed("cudaMalloc") || is_interposed("cudaFree");
}

/* The file name decides: a program may have a copy of the driver's functions linked in, which only hand on to the
   driver. */
static bool is_preloaded(const struct link_map *map)
{
    const char *list = sg_environment("LD_PRELOAD");
    return list && strstr(list, interposer_base(map->l_name)) != NULL;
}

/* An allocation succeeded without a call of the driver: some library before this one has served it. The line names it,
   once. */
void sg_interposer_hides(void)
{
    static const char *const names[] = {"dlsym", "cuGetProcAddress_v2", "cuGetProcAddress", "cuMemAlloc_v2"};
    static atomic_bool said;
    char line[1024];
    if (atomic_load_explicit(&said, memory_order_relaxed) || atomic_exchange(&said, true))
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct link_map *map = interposer_library(sg_dlsym()(RTLD_DEFAULT, names[i]));
        if (!is_interposer(map) || !is_preloaded(map))
            continue;
        snprintf(line, sizeof line,
            "nothing is served: %.600s comes before libsegalloc.so and answers %s in its place; preload in this order: "
            "LD_PRELOAD=libsegalloc.so:%.200s",
            map->l_name, names[i], interposer_base(map->l_name));
        sg_log_line(line);
        return;
    }
}

void sg_interposer_hidden(void)
{
    static const char *const names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuGetProcAddress_v2", "cuGetProcAddress",
        "cuMemCreate"};
    char line[1024];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct link_map *map = interposer_library(sg_dlsym()(RTLD_NEXT, names[i]));
        if (!is_interposer(map) || !is_preloaded(map) ||
            map == interposer_library(sg_cuda_symbol(names[i])))
            continue;
        snprintf(line, sizeof line,
            "%s of %.600s is not called: libsegalloc.so comes before it; preload in this order if that is to be: "
            "LD_PRELOAD=%.200s:libsegalloc.so",
            names[i], map->l_name, interposer_base(map->l_name));
        sg_log_line(line);
        return;
    }
}
