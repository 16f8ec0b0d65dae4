#include "process/glibc_symver.h"

#include "torch/torch_allocator.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/conf.h"
#include "process/process.h"
#include "process/symbols.h"
#include "process/upward_calls.h"
#include "segalloc/segalloc.h"
#include "torch/torch.h"
#include "torch/torch_counts.h"
#include "torch/torch_layout.h"
#include "torch/torch_observers.h"
#include "torch/torch_pools.h"
#include "torch/torch_sent.h"
#include "torch/torch_snapshot.h"
#include "track/free_policy.h"

/* The functions that are called or replaced, by what their mangled names have behind that of their class. Source:
   libtorch_cuda.so of PyTorch 2.5 to 2.15, where only parameters and places differ. */
#define FUNCTIONS(X)                           \
    X(ALLOCATE, "8allocateEm")                 \
    X(RAW_DELETER, "11raw_deleterEv")          \
    X(COPY, "9copy_dataEPvPKvm")               \
    X(EMPTY_CACHE, "10emptyCacheE")            \
    X(MEMORY_FRACTION, "17setMemoryFractionE") \
    X(FRACTION_SET, "17getMemoryFractionE")    \
    X(STATISTICS, "14getDeviceStatsE")         \
    X(RESET_PEAKS, "14resetPeakStatsE")        \
    X(RAW_ALLOC, "9raw_allocEm")               \
    X(RAW_DELETE, "10raw_deleteEPv")           \
    X(CACHE_INFO, "9cacheInfoE")               \
    X(BEGIN_POOL, "19beginAllocateToPoolE")    \
    X(END_POOL, "17endAllocateToPoolE")        \
    X(RESET_TOTALS, "21resetAccumulatedStatsE") \
    X(HISTORY, "13recordHistoryE")             \
    X(OBSERVER, "25attachOutOfMemoryObserverE") \
    X(SNAPSHOT, "8snapshotE")                  \
    X(SHARE, "14shareIpcHandleEPv")            \
    X(RECORD, "12recordStreamE")

enum function {
#define FUNCTION(name, text) name,
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    FUNCTION_COUNT
};

/* Behind the exported table there may be functions of the other class alone; and before it, the two words that the
   C++ ABI has there. */
enum { ENTRIES_MAX = 120, ENTRIES_MORE = 8, WORDS_BEFORE = 2 };

/* Changed by the one thread that has set `busy`, read by all once PyTorch's mode is settled. */
static struct {
    void **object;               /* the allocator, which begins with the address of its table */
    void *const *theirs;         /* its own table */
    int entry[FUNCTION_COUNT];
    void (*cached_delete)(void *);
    bool has_switch;
    const struct sg_torch_layout *layout; /* NULL: not known */
    enum { UNTRIED, WATCHED, TAKEN, NOT_TAKEN } state; /* what became of it */
    atomic_flag busy;
} allocator = {.busy = ATOMIC_FLAG_INIT};

/* Our table in place of the allocator's. */
static void *ours[WORDS_BEFORE + ENTRIES_MAX + ENTRIES_MORE];

/* PyTorch has `enable` and `isEnabled` right before `cacheInfo`, neither of them exported; releases that lack them have
   functions there that are. */
enum { BEFORE_ENABLE = 2, BEFORE_IS_ENABLED = 1 };

static const char *name_of(void *function)
{
    Dl_info info;
    return dladdr(function, &info) && info.dli_saddr == function && info.dli_sname ? info.dli_sname : "";
}

static bool find_entries(void *const *table, int count)
{
    static const char *const texts[] = {
#define FUNCTION(name, text) [name] = "22CUDAPluggableAllocator" text,
        FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    for (int f = 0; f < FUNCTION_COUNT; f++)
        allocator.entry[f] = -1;
    for (int entry = 0; entry < count; entry++) {
        const char *name = name_of(table[entry]);
        for (int f = 0; f < FUNCTION_COUNT; f++) {
            if (strstr(name, texts[f]))
                allocator.entry[f] = entry;
        }
    }
    for (int f = 0; f < FUNCTION_COUNT; f++) {
        if (allocator.entry[f] < 0 && f != FRACTION_SET && f != RECORD) /* PyTorch 2.5 lacks the first */
            return false;
    }
    int info = allocator.entry[CACHE_INFO];
    allocator.has_switch = info > BEFORE_ENABLE && !*name_of(table[info - BEFORE_ENABLE]) &&
        !*name_of(table[info - BEFORE_IS_ENABLED]);
    return true;
}

static void *symbol_of(const char *library, const char *name)
{
    void *handle = sg_library_find(library);
    void *symbol = handle ? sg_dlsym()(handle, name) : NULL;
    if (handle)
        (void)sg_library_close(handle);
    return symbol;
}

/* The exported class's table, and how many functions it has; 0: there is none. */
static int find_table(void *const **ret)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void **table = symbol_of("libtorch_cuda.so", "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
    if (!table || !dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || info.dli_saddr != table)
        return 0;
    int count = (int)(symbol->st_size / sizeof *table) - WORDS_BEFORE;
    *ret = table + WORDS_BEFORE;
    return count > 0 && count <= ENTRIES_MAX ? count : 0;
}

static void **current_object(void)
{
    void ***current = symbol_of("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    return current ? __atomic_load_n(current, __ATOMIC_ACQUIRE) : NULL;
}

/* PyTorch's own allocator: an object with static storage in the library that has its code. */
static bool find_object(void)
{
    Dl_info info;
    void **object = current_object();
    if (!object || !dladdr(*object, &info) || !info.dli_fname || !strstr(info.dli_fname, "libc10_cuda.so"))
        return false;
    allocator.object = object;
    allocator.theirs = *object;
    return true;
}

/* The allocator's own function, into a pointer to a function of its type. */
static void load(enum function function, void *ret)
{
    memcpy(ret, &allocator.theirs[allocator.entry[function]], sizeof(void *));
}

typedef void pool_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter);
typedef void words_fn(void *self, uintptr_t first, uintptr_t second);
typedef void delete_fn(void *self, void *block);

/* The parameters are a device, a pool's number, which is a pair of words, and a std::function, which is passed by
   address and emptied. */
static void begin_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter)
{
    pool_fn *theirs;
    struct sg_cxx_function copy = sg_cxx_function_copy(filter);
    load(BEGIN_POOL, &theirs);
    sg_torch_pool_begins(first, second);
    theirs(self, device, first, second, filter);
    sg_torch_pools_begin((int8_t)device, (struct sg_torch_pool){first, second}, copy);
}

typedef void end_pool_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second);

static void end_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second)
{
    end_pool_fn *theirs;
    load(END_POOL, &theirs);
    sg_torch_pools_end((int8_t)device, (struct sg_torch_pool){first, second});
    theirs(self, device, first, second);
}

typedef void history_fn(void *self, uintptr_t on, uintptr_t recorder, uintptr_t most, uintptr_t when, uintptr_t clear,
    uintptr_t skip);

/* Its last parameters came with time: what a release lacks it doesn't read. */
static void history(void *self, uintptr_t on, uintptr_t recorder, uintptr_t most, uintptr_t when, uintptr_t clear,
    uintptr_t skip)
{
    history_fn *theirs;
    load(HISTORY, &theirs);
    sg_torch_history((uint8_t)on);
    theirs(self, on, recorder, most, when, clear, skip);
}

typedef void observer_fn(void *self, void *observer);

static void observe(void *self, void *observer)
{
    observer_fn *theirs;
    load(OBSERVER, &theirs);
    sg_torch_observers_add(sg_cxx_function_copy(observer));
    theirs(self, observer);
}

/* Of a pool in newer releases; of none in older ones, which read no parameter. */
static void empty_cache(void *self, uintptr_t first, uintptr_t second)
{
    words_fn *theirs;
    load(EMPTY_CACHE, &theirs);
    theirs(self, first, second);
    segalloc_torch_reset();
}

typedef void fraction_fn(void *self, double fraction, uintptr_t device);

/* PyTorch's refuses a fraction or a device that cannot be, by an exception. */
static void memory_fraction(void *self, double fraction, uintptr_t device)
{
    fraction_fn *theirs;
    load(MEMORY_FRACTION, &theirs);
    theirs(self, fraction, device);
    if (sg_torch_direct())
        segalloc_torch_memory_fraction(fraction, (int8_t)device);
}

static void reset_peaks(void *self, uintptr_t device, uintptr_t unused)
{
    words_fn *theirs;
    load(RESET_PEAKS, &theirs);
    theirs(self, device, unused);
    sg_torch_counts_reset((int8_t)device);
}

typedef void spare_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second, uintptr_t on);

/* Its place is known from the release. */
static int spare_entry(void)
{
    int before = allocator.layout ? allocator.layout->spare_pool : 0;
    return before ? allocator.entry[SHARE] - before : -1;
}

static void spare_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, uintptr_t on)
{
    spare_fn *theirs;
    memcpy(&theirs, &allocator.theirs[spare_entry()], sizeof theirs);
    theirs(self, device, first, second, on);
    if ((uint8_t)on)
        sg_torch_spare_pool();
}

static void reset_totals(void *self, uintptr_t device, uintptr_t unused)
{
    words_fn *theirs;
    load(RESET_TOTALS, &theirs);
    theirs(self, device, unused);
    sg_torch_counts_reset_totals((int8_t)device);
}

/* PyTorch asks whether to cache before it allocates, frees, or names what frees a block; this thread's answer is given
   for it. */
enum answer { ANSWER_NONE, ANSWER_NO, ANSWER_YES };
static _Thread_local enum answer answer;
static _Thread_local unsigned asked; /* how often it was */

/* at::DataPtr: address, context and deleter, device. */
struct data_ptr {
    uintptr_t words[4];
};
typedef struct data_ptr allocate_fn(void *self, size_t bytes);
typedef void *raw_alloc_fn(void *self, size_t bytes);

/* What the thread allocates afterwards, by whatever module, is no segment of the cache's. */
static struct data_ptr allocate(void *self, size_t bytes)
{
    allocate_fn *theirs;
    load(ALLOCATE, &theirs);
    struct data_ptr got = theirs(self, bytes);
    sg_self.torch_cached = false;
    return got;
}

static void *raw_alloc(void *self, size_t bytes)
{
    raw_alloc_fn *theirs;
    load(RAW_ALLOC, &theirs);
    void *got = theirs(self, bytes);
    sg_self.torch_cached = false;
    return got;
}

/* PyTorch frees by what its cache is set to now; the block is freed as it was allocated. */
static void raw_delete(void *self, void *block)
{
    delete_fn *theirs;
    enum answer outer = answer;
    load(RAW_DELETE, &theirs);
    if (sg_torch_pools_seen() || sg_torch_switched())
        answer = sg_torch_is_direct(block) ? ANSWER_NO : ANSWER_YES;
    theirs(self, block);
    answer = outer;
}

typedef void (*deleter_fn(const void *self))(void *);

/* With PyTorch's pools, what frees a block out of them is looked for among the tensors of a graph. */
static void (*raw_deleter(const void *self))(void *)
{
    deleter_fn *theirs;
    enum answer outer = answer;
    load(RAW_DELETER, &theirs);
    if (sg_torch_pools_seen())
        answer = ANSWER_YES;
    void (*deleter)(void *) = theirs(self);
    answer = outer;
    return deleter;
}

/* The parameters are a c10::DataPtr by address, which begins with its pointer, and a stream, which is a pair of words.
   PyTorch itself ignores blocks that its cache has not. Source: c10/core/Allocator.h. */
typedef void record_fn(void *self, void *const *data, uintptr_t first, uintptr_t second);

static void record(void *self, void *const *data, uintptr_t first, uintptr_t second)
{
    record_fn *theirs;
    CUstream stream;
    load(RECORD, &theirs);
    theirs(self, data, first, second);
    if (sg_torch_is_direct(*data) && sg_torch_stream_handle(first, second, &stream))
        (void)sg_upward_calls.record_stream(*data, stream);
}

/* {ptrdiff_t offset; std::string handle}, whose text is longer than what fits into the object itself. */
struct shareable {
    uintptr_t words[5];
};
typedef struct shareable share_fn(void *self, void *pointer);

static struct shareable share(void *self, void *pointer)
{
    share_fn *theirs;
    load(SHARE, &theirs);
    void *copy = sg_torch_is_direct(pointer) ? sg_torch_sent_copy(pointer) : NULL;
    return theirs(self, copy ? copy : pointer);
}

#ifdef __x86_64__
typedef void *statistics_fn(void *ret, void *self, uintptr_t device);

/* The structure, whose size differs from release to release, is returned by address; other architectures have no
   parameter for that. */
static void *statistics(void *ret, void *self, uintptr_t device)
{
    statistics_fn *theirs;
    load(STATISTICS, &theirs);
    theirs(ret, self, device);
    sg_torch_counts_add(ret, allocator.layout->map_bytes, (int8_t)device);
    return ret;
}

typedef void *snapshot_fn(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces);

/* Of one pool, or of all memory where its number is 0, 0. */
static void *snapshot(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces)
{
    snapshot_fn *theirs;
    load(SNAPSHOT, &theirs);
    theirs(ret, self, first, second, traces);
    if (!(first | second) && sg_torch_direct())
        sg_torch_snapshot_add(ret);
    return ret;
}
#endif

#ifdef __x86_64__
/* Whether the statistics of the allocator that was found may be added to; where not, says so. */
static bool has_known_statistics(void)
{
    char version[64], line[256];
    allocator.layout = sg_torch_layout(allocator.theirs, version, sizeof version);
    if (allocator.layout)
        return true;
    snprintf(line, sizeof line,
        "PyTorch %s has statistics that this version does not know (2.%u to 2.%u are): while its cache is "
        "off torch.cuda.memory_stats() counts nothing",
        version, sg_torch_layout_first(), sg_torch_layout_last());
    sg_log_line(line);
    return false;
}
#endif

#define REPLACE(which, function) \
    do { \
        __typeof__(&(function)) ours_ = function; \
        memcpy(&ours[WORDS_BEFORE + allocator.entry[which]], &ours_, sizeof ours_); \
    } while (0)

/* Copies the table, with nothing replaced in it yet. */
static bool find(void)
{
    void *const *exported;
    int count = find_table(&exported);
    if (!count || !find_entries(exported, count) || !find_object())
        return false;
    memcpy(ours, allocator.theirs - WORDS_BEFORE, (size_t)(WORDS_BEFORE + count + ENTRIES_MORE) * sizeof *ours);
    return true;
}

static void use_ours(void)
{
    __atomic_store_n(allocator.object, ours + WORDS_BEFORE, __ATOMIC_RELEASE);
}

typedef void enable_fn(void *self, bool on);
typedef bool is_enabled_fn(const void *self);
static void set(bool on)
{
    enable_fn *enable;
    memcpy(&enable, &allocator.theirs[allocator.entry[CACHE_INFO] - BEFORE_ENABLE], sizeof enable);
    enable(allocator.object, on);
}

static bool is_set(void)
{
    is_enabled_fn *is_enabled;
    memcpy(&is_enabled, &allocator.theirs[allocator.entry[CACHE_INFO] - BEFORE_IS_ENABLED], sizeof is_enabled);
    return is_enabled(allocator.object);
}

static int is_enabled_entry(void)
{
    return allocator.entry[CACHE_INFO] - BEFORE_IS_ENABLED;
}

static void replace(int entry, void *function)
{
    __atomic_store_n(&ours[WORDS_BEFORE + entry], function, __ATOMIC_RELEASE);
}

/* PyTorch 2.14 and 2.15 read their switch first, and ask whether to cache at all only if it is on; 2.12 asks first. A
   switch turned off by that question would come too late for the tensor that is being made, so the question is brought
   about from here. Source: the code of NativeCachingAllocator::allocate() in the wheels of 2.12.1, 2.14.1 and 2.15.0. */
static bool is_enabled(const void *self)
{
    static _Thread_local bool asks;
    deleter_fn *deleter;
    is_enabled_fn *theirs;
    if (!asks && !sg_torch_mode_known()) {
        asks = true;
        load(RAW_DELETER, &deleter);
        (void)deleter(self);
        asks = false;
    }
    if (sg_torch_mode_known() && !sg_torch_direct())
        replace(is_enabled_entry(), allocator.theirs[is_enabled_entry()]);
    memcpy(&theirs, &allocator.theirs[is_enabled_entry()], sizeof theirs);
    asked++;
    if (answer != ANSWER_NONE)
        return answer == ANSWER_YES;
    bool caches = theirs(self);
    if (caches && !asks && sg_torch_direct()) /* what decides reads the switch first */
        sg_torch_caches_segments();
    return sg_self.torch_cached = caches || sg_torch_pool_allocates();
}

/* What changes nothing that PyTorch does, and is to be known of the time before its first allocation. */
static void replace_watched(void)
{
    REPLACE(BEGIN_POOL, begin_pool);
    REPLACE(END_POOL, end_pool);
    REPLACE(HISTORY, history);
    REPLACE(OBSERVER, observe);
    char version[64];
    allocator.layout = sg_torch_layout(allocator.theirs, version, sizeof version);
    if (spare_entry() >= 0) {
        spare_fn *function = spare_pool;
        memcpy(&ours[WORDS_BEFORE + spare_entry()], &function, sizeof function);
    }
}

static void replace_all(void)
{
    replace_watched();
    if (allocator.has_switch) {
        is_enabled_fn *function = is_enabled;
        memcpy(&ours[WORDS_BEFORE + is_enabled_entry()], &function, sizeof function);
        REPLACE(RAW_DELETER, raw_deleter);
        REPLACE(ALLOCATE, allocate);
        REPLACE(RAW_ALLOC, raw_alloc);
    }
    REPLACE(RESET_TOTALS, reset_totals);
    REPLACE(EMPTY_CACHE, empty_cache);
    REPLACE(MEMORY_FRACTION, memory_fraction);
    REPLACE(RESET_PEAKS, reset_peaks);
    REPLACE(RAW_DELETE, raw_delete);
    REPLACE(SHARE, share);
    if (allocator.entry[RECORD] >= 0 && sg_torch_has_streams()) {
        REPLACE(RECORD, record);
        sg_memory_record_stream_hooked();
    }
#ifdef __x86_64__
    if (has_known_statistics())
        REPLACE(STATISTICS, statistics);
    if (allocator.layout && allocator.layout->snapshot)
        REPLACE(SNAPSHOT, snapshot);
#endif
}

typedef double fraction_set_fn(void *self, uintptr_t device);

void sg_torch_allocator_limit(void)
{
    const struct sg_driver *driver = sg_process_driver();
    fraction_set_fn *fraction_of;
    int count = 0;
    if (allocator.state != TAKEN || allocator.entry[FRACTION_SET] < 0 || !driver ||
        driver->device_count(&count) != CUDA_SUCCESS)
        return;
    load(FRACTION_SET, &fraction_of);
    for (int device = 0; device < count; device++) {
        double fraction = fraction_of(allocator.object, (uintptr_t)device);
        if (fraction < 1)
            segalloc_torch_memory_fraction(fraction, device);
    }
}

void sg_torch_allocator_watch(void)
{
    if (atomic_flag_test_and_set(&allocator.busy))
        return; /* another thread does it, and may wait for the loader's lock, which this one may hold */
    if (allocator.state == UNTRIED && find() && allocator.has_switch) {
        replace_watched();
        is_enabled_fn *function = is_enabled;
        memcpy(&ours[WORDS_BEFORE + is_enabled_entry()], &function, sizeof function);
        use_ours();
        allocator.state = WATCHED;
    }
    atomic_flag_clear(&allocator.busy);
}

static bool take(void)
{
    if (allocator.state == WATCHED ? current_object() != allocator.object : !find())
        return false;
    replace_all();
    use_ours();
    return true;
}

bool sg_torch_allocator_take(void)
{
    while (atomic_flag_test_and_set(&allocator.busy))
        sched_yield();
    if (allocator.state == UNTRIED || allocator.state == WATCHED)
        allocator.state = take() ? TAKEN : NOT_TAKEN;
    bool taken = allocator.state == TAKEN;
    atomic_flag_clear(&allocator.busy);
    return taken;
}

/* What frees a block of the cache. Not while PyTorch makes up its mind whether to have one, which it does once and under
   a lock. */
static void note_deleter(void)
{
    deleter_fn *deleter;
    load(RAW_DELETER, &deleter);
    allocator.cached_delete = deleter(allocator.object);
}

bool sg_torch_allocator_answers(void)
{
#ifdef __x86_64__
    char version[64];
    sg_torch_allocator_watch();
    if ((allocator.state != WATCHED && allocator.state != TAKEN) || current_object() != allocator.object)
        return false;
    const struct sg_torch_layout *layout = sg_torch_layout(allocator.theirs, version, sizeof version);
    return layout && layout->snapshot;
#else
    return false;
#endif
}

bool sg_torch_allocator_routes(void)
{
    deleter_fn *deleter;
    if (allocator.state != TAKEN || !allocator.has_switch || !sg_torch_has_streams())
        return false;
    unsigned before = asked;
    load(RAW_DELETER, &deleter);
    answer = ANSWER_YES;
    void (*cached)(void *) = deleter(allocator.object);
    answer = ANSWER_NO;
    void (*uncached)(void *) = deleter(allocator.object);
    answer = ANSWER_NONE;
    return asked == before + 2 && cached != uncached;
}

bool sg_torch_allocator_empty(void)
{
    words_fn *theirs;
    if (allocator.state != TAKEN)
        return false;
    load(EMPTY_CACHE, &theirs);
    theirs(allocator.object, 0, 0);
    return true;
}

bool sg_torch_allocator_cache(bool on)
{
    if (allocator.state != TAKEN || !allocator.has_switch)
        return false;
    set(on);
    return is_set() == on;
}

void *sg_torch_allocator_get(size_t bytes)
{
    typedef void *alloc_fn(void *self, size_t bytes);
    alloc_fn *theirs;
    load(RAW_ALLOC, &theirs);
    bool was_on = is_set(), outer = sg_thread_enter();
    set(true);
    note_deleter();
    void *block = theirs(allocator.object, bytes);
    set(was_on);
    sg_thread_leave(outer);
    return block;
}

void sg_torch_allocator_put(void *block)
{
    allocator.cached_delete(block);
}

void sg_torch_allocator_copy(void *to, const void *from, size_t bytes)
{
    typedef void copy_fn(const void *self, void *to, const void *from, size_t bytes);
    copy_fn *theirs;
    load(COPY, &theirs);
    theirs(allocator.object, to, from, bytes);
}
