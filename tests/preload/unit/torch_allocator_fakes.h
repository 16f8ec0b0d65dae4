/* A table of PyTorch's allocator, made up for tests of it. To be included by one file of a program. */
#ifndef TORCH_ALLOCATOR_FAKES_H
#define TORCH_ALLOCATOR_FAKES_H

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/conf.h"
#include "process/process.h"
#include "process/symbols.h"
#include "process/upward_calls.h"
#include "segalloc/segalloc.h"
#include "torch/torch_current.h"
#include "torch/torch_overrides.h"
#include "torch/torch_switch.h"
#include "track/torch_mode.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_observers.h"
#include "torch/torch_pools.h"
#include "torch/torch_sent.h"
#include "torch/torch_snapshot.h"
#include "track/free_policy.h"

#define CLASS "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

/* Places of what is looked for; between them are functions of other names. */
static const struct {
    int slot;
    const char *name;
} named[] = {{2, CLASS "8allocateEm"}, {3, CLASS "11raw_deleterEv"}, {4, CLASS "9copy_dataEPvPKvm"},
    {9, CLASS "9raw_allocEm"}, {11, CLASS "10raw_deleteEPv"}, {17, CLASS "9cacheInfoEaPm"},
    {20, CLASS "14getDeviceStatsEa"}, {21, CLASS "10emptyCacheE6pair"}, {24, CLASS "14resetPeakStatsEa"},
    {30, CLASS "21beginAllocateToPoolEa"}, {31, CLASS "19beginAllocateToPoolEa"}, {33, CLASS "17setMemoryFractionEda"},
    {34, CLASS "17getMemoryFractionEa"}, {40, CLASS "14shareIpcHandleEPv"},
    {42, CLASS "12recordStreamERK7DataPtr10CUDAStream"}, {25, CLASS "17endAllocateToPoolEa"},
    {26, CLASS "21resetAccumulatedStatsEa"}, {27, CLASS "13recordHistoryEb"},
    {28, CLASS "25attachOutOfMemoryObserverESt8function"}, {29, CLASS "8snapshotESt4pair"}};
enum { NAMED = sizeof named / sizeof *named, MADE = 50, MOST = 130, MORE = 8, BEFORE = 2 };
enum {
    DELETER_AT = 3,
    ALLOC_AT = 9,
    DELETE_AT = 11,
    ENABLE_AT = 15,
    ENABLED_AT = 16,
    STATISTICS_AT = 20,
    FRACTION_AT = 33,
    BEGIN_AT = 31,
    END_AT = 25,
    TOTALS_AT = 26,
    HISTORY_AT = 27,
    OBSERVER_AT = 28,
    SNAPSHOT_AT = 29,
    EMPTY_AT = 21,
    FRACTION_SET_AT = 34,
    SHARE_AT = 40,
    RECORD_AT = 42
};

static struct made {
    int count;            /* functions of the exported table */
    int lacking;          /* a place of which the name is another */
    const char *in_force; /* the library of the allocator's */
    const char *version;  /* the text of version.py; NULL: there is none */
} made;

static char functions[MOST + MORE]; /* addresses to be named */
static void *exported[BEFORE + MOST + MORE], *own[BEFORE + MOST + MORE], **object[1], ***in_force;
static ElfW(Sym) symbol_of_table;
static char folder[] = "/tmp/segalloc-test-XXXXXX", library[192];
static int lines;

static inline const char *name_of_slot(int slot)
{
    for (int i = 0; i < NAMED && slot != made.lacking; i++)
        if (named[i].slot == slot)
            return named[i].name;
    return slot == 15 || slot == 16 ? NULL : CLASS "5otherEv"; /* the switch is not exported */
}

int library_of(const void *address, Dl_info *ret)
{
    const char *at = address;
    *ret = (Dl_info){.dli_fname = made.in_force};
    if (at >= functions && at < functions + sizeof functions) {
        ret->dli_sname = name_of_slot((int)(at - functions));
        ret->dli_saddr = ret->dli_sname ? (void *)(uintptr_t)address : NULL;
    }
    return 1;
}

int table_of(const void *address, Dl_info *ret, void **extra, int flags)
{
    assert_int_equal(flags, RTLD_DL_SYMENT);
    symbol_of_table.st_size = (size_t)(made.count + BEFORE) * sizeof(void *);
    *ret = (Dl_info){.dli_saddr = (void *)(uintptr_t)address};
    *extra = &symbol_of_table;
    return 1;
}

static inline void *find(void *handle, const char *name)
{
    (void)handle;
    return strstr(name, "_ZTV") ? (void *)exported : strstr(name, "allocatorE") ? (void *)&in_force : NULL;
}

sg_dlsym_fn *sg_dlsym(void)
{
    return find;
}

void *sg_library_find(const char *name)
{
    return (void *)(uintptr_t)name;
}

void sg_log_line(const char *line)
{
    assert_non_null(strstr(line, "statistics that this version does not know"));
    lines++;
}

enum { DEVICES = 3 };

static const struct sg_driver *driver; /* NULL: none is known */

const struct sg_driver *sg_process_driver(void)
{
    return driver;
}

static double limit[DEVICES]; /* set by PyTorch, as a fraction; 0: none */

void segalloc_torch_memory_fraction(double fraction, int device)
{
    assert_in_range(device, 0, DEVICES - 1);
    limit[device] = fraction;
}

static bool settled;

bool sg_torch_mode_known(void)
{
    return settled;
}

static bool direct, switched;

bool sg_torch_direct(void)
{
    return direct;
}

bool sg_torch_switched(void)
{
    return switched;
}

static char direct_block; /* an address */

bool sg_torch_is_direct(const void *pointer)
{
    return pointer == &direct_block;
}

static struct sg_conf conf;

const struct sg_conf *sg_process_conf(void)
{
    return &conf;
}

/* Calls of the allocator's functions. */
static struct {
    uint64_t begun, began_as; /* the pool of the question what begins with it, and of the list */
    int begins, ends, device, observers, totals, snapshots;
    bool history;
} told;

void sg_torch_pool_begins(uint64_t first, uint64_t second)
{
    told.begun = first + second;
}

void sg_torch_pools_begin(int device, struct sg_torch_pool pool, struct sg_cxx_function filter)
{
    told.begins++;
    told.device = device;
    told.began_as = pool.first + pool.second;
    assert_int_equal((uintptr_t)filter.storage[1], 77);
}

void sg_torch_pools_end(int device, struct sg_torch_pool pool)
{
    told.ends++;
    assert_int_equal(device, told.device);
    assert_int_equal(pool.first + pool.second, told.began_as);
}

static bool pools_seen, pool_allocates;

bool sg_torch_pools_seen(void)
{
    return pools_seen;
}

static int caches_segments;

void sg_torch_caches_segments(void)
{
    caches_segments++;
}

bool sg_torch_pool_allocates(void)
{
    return pool_allocates;
}

static int spare_pools;

void sg_torch_spare_pool(void)
{
    spare_pools++;
}

void sg_torch_history(bool is_on)
{
    told.history = is_on;
}

void sg_torch_observers_add(struct sg_cxx_function observer)
{
    told.observers++;
    assert_int_equal((uintptr_t)observer.storage[1], 77);
}

void sg_torch_counts_reset_totals(int device)
{
    told.totals = device;
}

void sg_torch_snapshot_add(void *snapshot)
{
    told.snapshots++;
    assert_non_null(snapshot);
}

static void *copy; /* of a block that was sent; NULL: none could be made */

void *sg_torch_sent_copy(void *pointer)
{
    assert_ptr_equal(pointer, &direct_block);
    return copy;
}

void segalloc_torch_reset(void)
{
}

static bool has_streams, records; /* PyTorch's functions for streams are there; what it records reaches us */
static struct {
    void *pointer, *stream;
} recorded;

bool sg_torch_has_streams(void)
{
    return has_streams;
}

bool sg_torch_stream_handle(uint64_t first, uint64_t second, CUstream *ret)
{
    *ret = (CUstream)(uintptr_t)(first + second);
    return has_streams;
}

void sg_memory_record_stream_hooked(void)
{
    records = true;
}

static inline int record_stream(void *pointer, void *stream)
{
    recorded.pointer = pointer;
    recorded.stream = stream;
    return 0;
}

const struct sg_upward_calls sg_upward_calls = {.record_stream = record_stream};

enum { TAKEN = 1, COUNTS = 2, SAYS = 4 };

static inline void write_version(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/version.py", folder);
    unlink(path);
    FILE *file = made.version ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "from typing import Optional\n\n__all__ = ['__version__']\n__version__ = '%s'\ndebug = False\n",
            made.version);
        fclose(file);
    }
}

/* cmocka's setup of a group: a folder as PyTorch is installed in one, FOLDER/lib/libc10_cuda.so beside FOLDER/version.py. */
static inline int install(void **state)
{
    char lib[64];
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(lib, sizeof lib, "%s/lib", folder);
    snprintf(library, sizeof library, "%s/libc10_cuda.so", lib);
    return mkdir(lib, 0700);
}

static inline int uninstall(void **state)
{
    char lib[64];
    (void)state;
    made.version = NULL;
    write_version();
    snprintf(lib, sizeof lib, "%s/lib", folder);
    return rmdir(lib) + rmdir(folder);
}

static inline void make_tables(void)
{
    for (int i = 0; i < MOST + MORE; i++)
        exported[BEFORE + i] = own[BEFORE + i] = &functions[i];
    object[0] = own + BEFORE;
    in_force = (void ***)object;
}

/* The allocator of a PyTorch like 2.14, which reads its switch before it asks whether to cache. */
static bool on = true;
static int questions;

typedef bool is_enabled_fn(const void *self);
typedef void (*deleter_fn(const void *self))(void *);

static inline void own_enable(void *self, bool value)
{
    assert_ptr_equal(self, object);
    on = value;
}

static inline bool own_is_enabled(const void *self)
{
    assert_ptr_equal(self, object);
    return on;
}

static inline void own_delete(void *block)
{
    (void)block;
}

static inline bool reads_switch(void)
{
    is_enabled_fn *function;
    memcpy(&function, &object[0][ENABLED_AT], sizeof function);
    return function(object);
}

static inline void (*own_deleter(const void *self))(void *)
{
    assert_ptr_equal(self, object);
    if (reads_switch() && !questions++) {
        direct = sg_torch_overrides_take() && sg_torch_allocator_cache(false);
        settled = true;
    }
    return own_delete;
}

static inline void make_allocator(void)
{
    void (*enable)(void *, bool) = own_enable;
    is_enabled_fn *is_enabled = own_is_enabled;
    deleter_fn *deleter = own_deleter;
    make_tables();
    memcpy(&own[BEFORE + ENABLE_AT], &enable, sizeof enable);
    memcpy(&own[BEFORE + ENABLED_AT], &is_enabled, sizeof is_enabled);
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
}

static inline void expect_in_child(int (*what)(void), int result)
{
    int status;
    made = (struct made){MADE, -1, library, "2.15.0"};
    write_version();
    pid_t child = fork();
    if (child == 0)
        _exit(what());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), result);
}

/* So long that it is returned by address. */
struct handle {
    uintptr_t words[5];
};

typedef void fraction_fn(void *self, double fraction, uintptr_t device);
typedef void delete_fn(void *self, void *block);
typedef struct handle share_fn(void *self, void *pointer);

typedef void record_fn(void *self, void *const *data, uintptr_t first, uintptr_t second);

typedef void pool_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter);
typedef void any_fn(void *self, uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth, uintptr_t fifth,
    uintptr_t sixth);
typedef void *snapshot_fn(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces);

#endif
