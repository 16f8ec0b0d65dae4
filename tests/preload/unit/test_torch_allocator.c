/* PyTorch's own allocator made up: a table of functions of which the names say what they are, and one of the other class
   with the same base. What is taken of it, by how many functions there are and by which release it is of. Each case has a
   process of its own, for an allocator is taken once. */
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
} named[] = {{2, CLASS "8allocateEm"}, {3, CLASS "11raw_deleterEv"}, {4, CLASS "9copy_dataEPvPKvm"}, {9, CLASS "9raw_allocEm"},
    {11, CLASS "10raw_deleteEPv"}, {17, CLASS "9cacheInfoEaPm"}, {20, CLASS "14getDeviceStatsEa"},
    {21, CLASS "10emptyCacheE6pair"}, {24, CLASS "14resetPeakStatsEa"}, {30, CLASS "21beginAllocateToPoolEa"},
    {31, CLASS "19beginAllocateToPoolEa"}, {33, CLASS "17setMemoryFractionEda"}, {34, CLASS "17getMemoryFractionEa"},
    {40, CLASS "14shareIpcHandleEPv"}, {42, CLASS "12recordStreamERK7DataPtr10CUDAStream"},
    {25, CLASS "17endAllocateToPoolEa"}, {26, CLASS "21resetAccumulatedStatsEa"}, {27, CLASS "13recordHistoryEb"},
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
    int count;             /* functions of the exported table */
    int lacking;           /* a place of which the name is another */
    const char *in_force;  /* the library of the allocator's */
    const char *version;   /* the text of version.py; NULL: there is none */
} made;

static char functions[MOST + MORE]; /* addresses to be named */
static void *exported[BEFORE + MOST + MORE], *own[BEFORE + MOST + MORE], **object[1], ***in_force;
static ElfW(Sym) symbol_of_table;
static char folder[] = "/tmp/segalloc-test-XXXXXX", library[192];
static int lines;

static const char *name_of_slot(int slot)
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

static void *find(void *handle, const char *name)
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
static CUresult counting; /* what the driver says to the question how many devices there are */

static CUresult count_devices(int *ret)
{
    *ret = DEVICES;
    return counting;
}

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

static char direct_block, cached_block, sent_block; /* addresses */

bool sg_torch_is_direct(const void *pointer)
{
    return pointer == &direct_block;
}

static struct sg_conf conf;

const struct sg_conf *sg_process_conf(void)
{
    return &conf;
}

/* What the allocator's functions have told. */
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

static int record_stream(void *pointer, void *stream)
{
    recorded.pointer = pointer;
    recorded.stream = stream;
    return 0;
}

const struct sg_upward_calls sg_upward_calls = {.record_stream = record_stream};

enum { TAKEN = 1, COUNTS = 2, SAYS = 4 };

static void write_version(void)
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

static void make_tables(void)
{
    for (int i = 0; i < MOST + MORE; i++)
        exported[BEFORE + i] = own[BEFORE + i] = &functions[i];
    object[0] = own + BEFORE;
    in_force = (void ***)object;
}

static int take(void)
{
    make_tables();
    bool taken = sg_torch_overrides_take();
    void **now = object[0];
    if (!taken)
        return now == own + BEFORE ? lines * SAYS : -1; /* nothing has changed */
    if (now == own + BEFORE || now[SHARE_AT] == &functions[SHARE_AT] || now[made.count + MORE - 1] == NULL)
        return -1;
    return TAKEN + COUNTS * (now[STATISTICS_AT] != &functions[STATISTICS_AT]) + SAYS * lines;
}

static void expect(const struct made *what, int result)
{
    int status;
    made = *what;
    write_version();
    pid_t child = fork();
    if (child == 0)
        _exit(take());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != result)
        fail_msg("%d functions of PyTorch %s: %d, not %d", what->count,
            what->version ? what->version : "without a version", WIFEXITED(status) ? WEXITSTATUS(status) : -1, result);
}

/* Releases whose statistics were looked at, and others, however many functions they have. */
static void statistics_are_taken_of_known_releases(void **state)
{
    static const char *const known[] = {"2.5.1", "2.6.0+cu124", "2.8.0", "2.9.1", "2.10.0+cu130", "2.11.0", "2.12.1",
        "2.13.0", "2.14.1+cu130", "2.15.0"},
        *const unknown[] = {"2.4.1", "2.16.0", "3.0.0", "2.12.0a0+git1", "2.11.0.dev1", "2.11", "2", "", NULL};
    static const int counts[] = {46, 50, 51, 57};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            expect(&(struct made){counts[c], -1, library, known[i]}, TAKEN + COUNTS);
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
            expect(&(struct made){counts[c], -1, library, unknown[i]}, TAKEN + SAYS);
    }
}

static void what_lacks_a_name_is_left_alone(void **state)
{
    (void)state;
    for (int i = 0; i < NAMED; i++)
        expect(&(struct made){50, named[i].slot, library, "2.11.0"},
            named[i].slot == 30 || named[i].slot == 34 || named[i].slot == RECORD_AT ? TAKEN + COUNTS : 0);
    expect(&(struct made){40, -1, library, "2.11.0"}, 0); /* the last is beyond its end */
    expect(&(struct made){121, -1, library, "2.11.0"}, 0);
    expect(&(struct made){-1, -1, library, "2.11.0"}, 0);
    expect(&(struct made){50, -1, "/somewhere/libother.so", "2.11.0"}, 0);
    expect(&(struct made){50, -1, NULL, "2.11.0"}, 0);
}

/* What of the allocator is called where its switch is read before it asks whether to cache, as PyTorch 2.14 does. */
static bool on = true;
static int questions;
static void **other[] = {own + BEFORE};

typedef bool is_enabled_fn(const void *self);
typedef void (*deleter_fn(const void *self))(void *);

static void own_enable(void *self, bool value)
{
    assert_ptr_equal(self, object);
    on = value;
}

static bool own_is_enabled(const void *self)
{
    assert_ptr_equal(self, object);
    return on;
}

static void own_delete(void *block)
{
    (void)block;
}

static void *uncached; /* the block that was freed without the cache */

static void own_uncached_delete(void *block)
{
    uncached = block;
}

static bool reads_switch(void)
{
    is_enabled_fn *function;
    memcpy(&function, &object[0][ENABLED_AT], sizeof function);
    return function(object);
}

static void (*own_deleter(const void *self))(void *)
{
    assert_ptr_equal(self, object);
    if (reads_switch() && !questions++) {
        direct = sg_torch_overrides_take() && sg_torch_allocator_cache(false);
        settled = true;
    }
    return own_delete;
}

static void make_allocator(void)
{
    void (*enable)(void *, bool) = own_enable;
    is_enabled_fn *is_enabled = own_is_enabled;
    deleter_fn *deleter = own_deleter;
    make_tables();
    memcpy(&own[BEFORE + ENABLE_AT], &enable, sizeof enable);
    memcpy(&own[BEFORE + ENABLED_AT], &is_enabled, sizeof is_enabled);
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
}

/* The first tensor is made without the cache already. */
static int ask_early(void)
{
    make_allocator();
    sg_torch_overrides_watch();
    bool watched = object[0] != own + BEFORE && object[0][SHARE_AT] == &functions[SHARE_AT] && on && !questions;
    sg_torch_overrides_watch();
    bool off = !reads_switch() && questions == 1 && object[0][SHARE_AT] != &functions[SHARE_AT];
    bool stays = object[0][ENABLED_AT] != own[BEFORE + ENABLED_AT] && !reads_switch() && !sg_self.torch_cached;
    pool_allocates = true; /* the next tensor alone */
    bool routed = reads_switch() && sg_self.torch_cached && questions == 1;
    pool_allocates = false;
    return watched && off && stays && routed && !reads_switch() && !sg_self.torch_cached;
}

/* As with the mode beneath, or where a variable of the environment says what is to be. */
static int ask_first(void)
{
    make_allocator();
    sg_torch_overrides_watch();
    settled = true;
    return reads_switch() && questions == 0 && object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] &&
           object[0][SHARE_AT] == own[BEFORE + SHARE_AT];
}

/* Another allocator is in force by the time of the question. */
static int replaced_meanwhile(void)
{
    make_allocator();
    sg_torch_overrides_watch();
    in_force = other;
    return reads_switch() && questions == 1 && object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] &&
           object[0][SHARE_AT] == own[BEFORE + SHARE_AT];
}

static void expect_in_child(int (*what)(void), int result)
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

static void caching_is_settled_when_the_switch_is_read(void **state)
{
    (void)state;
    expect_in_child(ask_early, 1);
    expect_in_child(ask_first, 1);
    expect_in_child(replaced_meanwhile, 1);
}

/* The place of `enable` has a name there, as before PyTorch 2.9. */
static int watch_without_switch(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    sg_torch_overrides_watch();
    return object[0] == own + BEFORE;
}

/* pytorch:direct has lines for pools and history. Nothing else changes. */
static int watch_for_lines(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    conf.pytorch = SG_PYTORCH_DIRECT;
    sg_torch_overrides_watch();
    return object[0] != own + BEFORE && object[0][END_AT] != own[BEFORE + END_AT] &&
           object[0][HISTORY_AT] != own[BEFORE + HISTORY_AT] && object[0][ENABLED_AT] == own[BEFORE + ENABLED_AT] &&
           object[0][SHARE_AT] == own[BEFORE + SHARE_AT] && !sg_torch_overrides_answer();
}

static void what_has_no_switch_is_not_watched(void **state)
{
    (void)state;
    expect_in_child(watch_without_switch, 1);
    expect_in_child(watch_for_lines, 1);
}

/* PyTorch's functions of one purpose each, and how they were called last. */
static struct {
    double fraction;
    uintptr_t device;
    void *deleted, *shared;
} call;

static void own_fraction(void *self, double fraction, uintptr_t device)
{
    assert_ptr_equal(self, object);
    call.fraction = fraction;
    call.device = device;
}

static double own_fraction_set(void *self, uintptr_t device)
{
    assert_ptr_equal(self, object);
    return device == 1 ? 0.25 : 1;
}

static void own_raw_delete(void *self, void *block)
{
    assert_ptr_equal(self, object);
    if (reads_switch())
        call.deleted = block;
    else
        own_uncached_delete(block);
}

/* As long as what is returned by address. */
struct handle {
    uintptr_t words[5];
};

static struct handle own_share(void *self, void *pointer)
{
    assert_ptr_equal(self, object);
    call.shared = pointer;
    return (struct handle){{1, 2, 3, 4, 5}};
}

static void *own_alloc(void *self, size_t bytes)
{
    assert_ptr_equal(self, object);
    return on && bytes == 1 << 20 ? &cached_block : NULL;
}

static void (*deleter_of_switch(const void *self))(void *)
{
    assert_ptr_equal(self, object);
    return reads_switch() ? own_delete : own_uncached_delete;
}

typedef void fraction_fn(void *self, double fraction, uintptr_t device);
typedef void delete_fn(void *self, void *block);
typedef struct handle share_fn(void *self, void *pointer);

static void own_record(void *self, void *const *data, uintptr_t first, uintptr_t second)
{
    assert_ptr_equal(self, object);
    call.shared = *data;
    call.device = first + second;
}

typedef void record_fn(void *self, void *const *data, uintptr_t first, uintptr_t second);

/* Takes the allocator with these functions in it. */
static void take_working(void)
{
    fraction_fn *fraction = own_fraction;
    double (*fraction_set)(void *, uintptr_t) = own_fraction_set;
    delete_fn *delete = own_raw_delete;
    share_fn *share = own_share;
    record_fn *record = own_record;
    void *(*alloc)(void *, size_t) = own_alloc;
    deleter_fn *deleter = deleter_of_switch;
    make_allocator();
    settled = true;
    memcpy(&own[BEFORE + FRACTION_AT], &fraction, sizeof fraction);
    memcpy(&own[BEFORE + FRACTION_SET_AT], &fraction_set, sizeof fraction_set);
    memcpy(&own[BEFORE + DELETE_AT], &delete, sizeof delete);
    memcpy(&own[BEFORE + SHARE_AT], &share, sizeof share);
    memcpy(&own[BEFORE + RECORD_AT], &record, sizeof record);
    memcpy(&own[BEFORE + ALLOC_AT], &alloc, sizeof alloc);
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
    assert_true(sg_torch_overrides_take());
}

/* A limit of PyTorch's holds for our memory only where that serves its tensors. */
static int set_fraction(void)
{
    fraction_fn *function;
    take_working();
    memcpy(&function, &object[0][FRACTION_AT], sizeof function);
    function(object, 0.5, 2);
    bool theirs_alone = call.fraction == 0.5 && call.device == 2 && limit[2] == 0;
    direct = settled = true;
    function(object, 0.75, 1);
    return theirs_alone && call.fraction == 0.75 && call.device == 1 && limit[1] == 0.75 && limit[2] == 0;
}

/* Limits that PyTorch had before it was taken, of each device that has one. */
static int limits_before(void)
{
    struct sg_driver table = {.device_count = count_devices};
    sg_torch_allocator_limit();
    bool untaken = limit[1] == 0;
    take_working();
    sg_torch_allocator_limit();
    bool no_driver = limit[1] == 0;
    driver = &table;
    counting = CUDA_ERROR_NOT_INITIALIZED;
    sg_torch_allocator_limit();
    bool unknown = limit[1] == 0;
    counting = CUDA_SUCCESS;
    sg_torch_allocator_limit();
    return untaken && no_driver && unknown && limit[0] == 0 && limit[1] == 0.25 && limit[2] == 0;
}

/* PyTorch 2.5 cannot say which limit it has. */
static int limits_unknown(void)
{
    struct sg_driver table = {.device_count = count_devices};
    driver = &table;
    made.lacking = FRACTION_SET_AT;
    take_working();
    sg_torch_allocator_limit();
    return limit[0] == 0 && limit[1] == 0 && limit[2] == 0;
}

static void limits_are_taken_over(void **state)
{
    (void)state;
    expect_in_child(set_fraction, 1);
    expect_in_child(limits_before, 1);
    expect_in_child(limits_unknown, 1);
}

/* A block is freed as it was allocated, whatever the cache is set to now. */
static int free_as_allocated(void)
{
    delete_fn *function;
    direct = true;
    take_working();
    memcpy(&function, &object[0][DELETE_AT], sizeof function);
    function(object, &direct_block);
    bool before = call.deleted == &direct_block && !uncached;
    bool off = sg_torch_allocator_cache(false) && !on, back = sg_torch_allocator_cache(true) && on;
    switched = true;
    function(object, &cached_block);
    bool of_cache = call.deleted == &cached_block && !uncached;
    function(object, &direct_block);
    return before && off && back && of_cache && call.deleted == &cached_block && uncached == &direct_block;
}

/* PyTorch's cache serves one block although it is off. */
static int get_of_cache(void)
{
    take_working();
    on = false;
    return sg_torch_allocator_get(1 << 20) == &cached_block && !on;
}

static int no_switch(void)
{
    bool untaken = !sg_torch_allocator_cache(false);
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    return untaken && sg_torch_overrides_take() && !sg_torch_allocator_cache(false) && on;
}

static void blocks_keep_to_their_allocator(void **state)
{
    (void)state;
    expect_in_child(free_as_allocated, 1);
    expect_in_child(get_of_cache, 1);
    expect_in_child(no_switch, 1);
}

/* What another process gets is the copy, where there is one, and PyTorch's own handle. */
static int share_copy(void)
{
    share_fn *function;
    take_working();
    memcpy(&function, &object[0][SHARE_AT], sizeof function);
    bool whole = function(object, &cached_block).words[4] == 5 && call.shared == &cached_block;
    (void)function(object, &direct_block);
    bool uncopied = call.shared == &direct_block;
    copy = &sent_block;
    (void)function(object, &direct_block);
    return whole && uncopied && call.shared == &sent_block;
}

static void a_copy_is_shared(void **state)
{
    (void)state;
    expect_in_child(share_copy, 1);
}

/* PyTorch gets what it records too. It ignores tensors that its cache has not: those are ours. */
static int record_streams(void)
{
    record_fn *function;
    void *const direct_data[2] = {&direct_block, &sent_block}, *const cached_data[2] = {&cached_block, NULL};
    has_streams = true;
    take_working();
    memcpy(&function, &object[0][RECORD_AT], sizeof function);
    function(object, cached_data, 40, 2);
    bool theirs_alone = call.shared == &cached_block && call.device == 42 && !recorded.pointer;
    function(object, direct_data, 40, 3);
    return records && theirs_alone && call.shared == &direct_block && recorded.pointer == &direct_block &&
           recorded.stream == (void *)43;
}

/* Without its functions for streams, or its own for records, nobody says that it records. */
static int record_unknown(void)
{
    take_working();
    return !records && object[0][RECORD_AT] == own[BEFORE + RECORD_AT];
}

static int record_lacking(void)
{
    has_streams = true;
    made.lacking = RECORD_AT;
    take_working();
    return !records && object[0][RECORD_AT] == own[BEFORE + RECORD_AT];
}

static void recorded_streams_reach_us(void **state)
{
    (void)state;
    expect_in_child(record_streams, 1);
    expect_in_child(record_unknown, 1);
    expect_in_child(record_lacking, 1);
}

/* A library without a folder, a path beyond what is read, a version that is too long. */
static void versions_that_cannot_be_read(void **state)
{
    static char longest[2 * SG_PATH_BYTES];
    (void)state;
    expect(&(struct made){50, -1, "libc10_cuda.so", "2.11.0"}, TAKEN + SAYS);
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '/';
    strcpy(longest + sizeof longest - sizeof "/libc10_cuda.so", "/libc10_cuda.so");
    expect(&(struct made){50, -1, longest, "2.11.0"}, TAKEN + SAYS);
    expect(&(struct made){50, -1, library,
               "2.11.0+a.very.long.name.of.a.build.that.somebody.made.for.some.machine.of.theirs"},
        TAKEN + SAYS);
}

/* What PyTorch says of memory, by its release: not where another allocator is in force, nor where there is no switch. */
static int answer(void)
{
    make_allocator();
    bool watched = sg_torch_overrides_answer() && object[0] != own + BEFORE;
    in_force = other;
    return watched && !sg_torch_overrides_answer();
}

static int answer_of_old_release(void)
{
    make_allocator();
    made.version = "2.8.0";
    write_version();
    return !sg_torch_overrides_answer();
}

static int answer_without_switch(void)
{
    make_allocator();
    exported[BEFORE + ENABLE_AT] = &functions[DELETER_AT];
    return !sg_torch_overrides_answer();
}

static void answers_are_of_known_releases(void **state)
{
    (void)state;
    expect_in_child(answer, 1);
    expect_in_child(answer_of_old_release, 1);
    expect_in_child(answer_without_switch, 1);
}

/* Each question of PyTorch's whether to cache is one of the thread's that allocates. */
static int route(void)
{
    has_streams = direct = true;
    take_working();
    bool routes = sg_torch_allocator_routes() && on;
    on = false;
    deleter_fn *deleter;
    memcpy(&deleter, &object[0][DELETER_AT], sizeof deleter);
    bool direct_deleter = deleter(object) == own_uncached_delete;
    pools_seen = true;
    return routes && direct_deleter && deleter(object) == own_delete && !reads_switch();
}

static int route_without_streams(void)
{
    direct = true;
    take_working();
    return !sg_torch_allocator_routes();
}

/* A PyTorch that reads a variable instead. */
static void (*deleter_of_variable(const void *self))(void *)
{
    (void)self;
    return own_delete;
}

static int route_unasked(void)
{
    deleter_fn *deleter = deleter_of_variable;
    has_streams = direct = true;
    take_working();
    memcpy(&own[BEFORE + DELETER_AT], &deleter, sizeof deleter);
    return !sg_torch_allocator_routes();
}

static void tensors_go_to_the_cache_one_by_one(void **state)
{
    (void)state;
    expect_in_child(route, 1);
    expect_in_child(route_without_streams, 1);
    expect_in_child(route_unasked, 1);
}

typedef void pool_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter);
typedef void any_fn(void *self, uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth, uintptr_t fifth,
    uintptr_t sixth);
typedef void *snapshot_fn(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces);

static int forwarded;

static void own_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter)
{
    assert_ptr_equal(self, object);
    assert_int_equal(told.begun, 12);
    assert_int_equal(told.begins, 0);
    forwarded += device == 2 && first == 5 && second == 7 && filter;
}

static void own_any(void *self, uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth, uintptr_t fifth,
    uintptr_t sixth)
{
    assert_ptr_equal(self, object);
    (void)first, (void)second, (void)third, (void)fourth, (void)fifth, (void)sixth;
    forwarded++;
}

static void *own_snapshot(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces)
{
    assert_ptr_equal(self, object);
    forwarded += ret && traces == 1 && (first == 0 || second == 3);
    return ret;
}

static bool clone(void *to, const void *from, int what)
{
    assert_int_equal(what, SG_CXX_CLONE);
    memcpy(to, from, sizeof(void *) * 2);
    return false;
}

/* Pools, history, observers, totals and snapshots reach both PyTorch's allocator and what is to know of them. */
static int tell(void)
{
    struct sg_cxx_function function = {.storage = {NULL, (void *)77}, .manager = clone};
    pool_fn *begin = own_pool;
    any_fn *any = own_any, *end, *history, *observe, *totals, *empty, *spare;
    snapshot_fn *snapshot = own_snapshot;
    make_allocator();
    memcpy(&own[BEFORE + BEGIN_AT], &begin, sizeof begin);
    memcpy(&own[BEFORE + SNAPSHOT_AT], &snapshot, sizeof snapshot);
    static const int others[] = {END_AT, HISTORY_AT, OBSERVER_AT, TOTALS_AT, EMPTY_AT, SHARE_AT - 3};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        memcpy(&own[BEFORE + others[i]], &any, sizeof any);
    assert_true(!sg_torch_allocator_empty() && sg_torch_overrides_take());
    memcpy(&begin, &object[0][BEGIN_AT], sizeof begin);
    memcpy(&end, &object[0][END_AT], sizeof end);
    memcpy(&history, &object[0][HISTORY_AT], sizeof history);
    memcpy(&observe, &object[0][OBSERVER_AT], sizeof observe);
    memcpy(&totals, &object[0][TOTALS_AT], sizeof totals);
    memcpy(&snapshot, &object[0][SNAPSHOT_AT], sizeof snapshot);
    begin(object, 2, 5, 7, &function);
    end(object, 2, 5, 7, 0, 0, 0);
    history(object, 1, 2, 3, 4, 5, 6);
    observe(object, (uintptr_t)&function, 0, 0, 0, 0, 0);
    totals(object, 2, 0, 0, 0, 0, 0);
    memcpy(&spare, &object[0][SHARE_AT - 3], sizeof spare);
    spare(object, 2, 5, 7, 0, 0, 0);
    bool unspared = spare_pools == 0;
    spare(object, 2, 5, 7, 1, 0, 0);
    forwarded -= unspared && spare_pools == 1 ? 2 : 0;
    memcpy(&empty, &own[BEFORE + EMPTY_AT], sizeof empty);
    bool forwards = forwarded == 5 && sg_torch_allocator_empty() && forwarded == 6;
    (void)snapshot(&function, object, 0, 0, 1);
    bool not_direct = told.snapshots == 0;
    direct = true;
    (void)snapshot(&function, object, 5, 3, 1); /* of one pool */
    bool of_pool = told.snapshots == 0;
    (void)snapshot(&function, object, 0, 0, 1);
    return forwards && not_direct && of_pool && told.snapshots == 1 && forwarded == 9 && told.begins == 1 && told.ends == 1 &&
           told.history && told.observers == 1 && told.totals == 2;
}

static void what_pytorch_is_told_reaches_us(void **state)
{
    (void)state;
    expect_in_child(tell, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_taken_of_known_releases),
        cmocka_unit_test(what_lacks_a_name_is_left_alone),
        cmocka_unit_test(caching_is_settled_when_the_switch_is_read),
        cmocka_unit_test(what_has_no_switch_is_not_watched),
        cmocka_unit_test(limits_are_taken_over),
        cmocka_unit_test(tensors_go_to_the_cache_one_by_one),
        cmocka_unit_test(answers_are_of_known_releases),
        cmocka_unit_test(what_pytorch_is_told_reaches_us),
        cmocka_unit_test(blocks_keep_to_their_allocator),
        cmocka_unit_test(a_copy_is_shared),
        cmocka_unit_test(recorded_streams_reach_us),
        cmocka_unit_test(versions_that_cannot_be_read),
    };
    char lib[64];
    if (!mkdtemp(folder))
        return 1;
    snprintf(lib, sizeof lib, "%s/lib", folder);
    mkdir(lib, 0700);
    snprintf(library, sizeof library, "%s/libc10_cuda.so", lib);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    made.version = NULL;
    write_version();
    rmdir(lib);
    rmdir(folder);
    return failed;
}
