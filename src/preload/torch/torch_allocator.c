#include "process/glibc_symver.h"

#include "torch/torch_allocator.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "conf.h"
#include "process/process.h"
#include "process/symbols.h"
#include "process/upward_calls.h"
#include "segalloc/segalloc.h"
#include "torch/torch.h"
#include "torch/torch_counts.h"
#include "torch/torch_sent.h"
#include "track/free_policy.h"

/* The functions that are called or replaced, by what their mangled names have behind that of their class. Source:
   libtorch_cuda.so of PyTorch 2.5 to 2.15, where only parameters and places differ. */
#define FUNCTIONS(X)                           \
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

/* Releases 2.N by what stands between the counts of their statistics (torch_counts.h). Source: struct DeviceStats in the
   headers of the wheels (2.5.1, 2.6.0, 2.7.1, 2.8.0, 2.9.1, 2.10.0, 2.11.0, 2.12.0 and 2.12.1).
   Those of 2.13.0, 2.14.0, 2.14.1 and 2.15.0 have a ska::flat_hash_map there. */
static const struct layout {
    unsigned from, to;
    size_t map_bytes;
} layouts[] = {{5, 12, 0}, {13, 15, 32}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Changed by the one thread that has set `busy`, read by all once PyTorch's mode is settled. */
static struct {
    void **object;               /* the allocator, which begins with the address of its table */
    void *const *theirs;         /* its own table */
    int entry[FUNCTION_COUNT];
    void (*cached_delete)(void *);
    void (*uncached_delete)(void *);
    bool has_switch;
    const struct layout *layout; /* of its statistics; NULL: not known */
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
   address. */
static void begin_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter)
{
    pool_fn *theirs;
    load(BEGIN_POOL, &theirs);
    sg_torch_pool_begins(first, second);
    theirs(self, device, first, second, filter);
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

/* PyTorch frees by what its cache is set to now; the block is freed as it was allocated. */
static void raw_delete(void *self, void *block)
{
    delete_fn *theirs;
    load(RAW_DELETE, &theirs);
    if (sg_torch_switched() && sg_torch_is_direct(block))
        allocator.uncached_delete(block);
    else
        theirs(self, block);
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
#endif

#ifdef __x86_64__
/* The release, as PyTorch's version.py beside the folder of `library` has it ("2.11.0+cu130"); false: there is none. */
static bool read_version(const char *library, char *ret, size_t size)
{
    static const char before[] = "\n__version__ = '";
    char path[SG_PATH_BYTES], text[1024];
    const char *slash = strrchr(library, '/');
    int length = slash ? snprintf(path, sizeof path, "%.*s/../version.py", (int)(slash - library), library) : 0;
    int file = length > 0 && length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = '\0';
    const char *found = strstr(text, before), *begin = found ? found + sizeof before - 1 : NULL;
    size_t bytes = begin ? strcspn(begin, "'\n") : 0;
    if (bytes == 0 || bytes >= size)
        return false;
    memcpy(ret, begin, bytes);
    ret[bytes] = '\0';
    return true;
}

/* NULL: a release that is not among them, or a build on the way to one ("2.12.0a0+git"). */
static const struct layout *layout_of(const char *version)
{
    unsigned minor, patch;
    int end = 0;
    if (sscanf(version, "2.%u.%u%n", &minor, &patch, &end) != 2 || (version[end] && version[end] != '+'))
        return NULL;
    for (int i = 0; i < LAYOUTS; i++) {
        if (minor >= layouts[i].from && minor <= layouts[i].to)
            return &layouts[i];
    }
    return NULL;
}

/* Whether the statistics of the allocator that was found may be added to; where not, says so. */
static bool has_known_statistics(void)
{
    Dl_info info;
    char version[64] = "of an unknown version", line[256];
    if (dladdr(allocator.theirs, &info) && info.dli_fname && read_version(info.dli_fname, version, sizeof version))
        allocator.layout = layout_of(version);
    if (allocator.layout)
        return true;
    snprintf(line, sizeof line,
        "PyTorch %s has statistics that this version does not know (2.%u to 2.%u are): while its cache is "
        "off torch.cuda.memory_stats() counts nothing",
        version, layouts[0].from, layouts[LAYOUTS - 1].to);
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

static void replace_all(void)
{
    REPLACE(BEGIN_POOL, begin_pool);
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
#endif
}

typedef double fraction_set_fn(void *self, uintptr_t device);

void sg_torch_allocator_limit(void)
{
    const struct sg_driver *driver = sg_process_driver();
    fraction_set_fn *set;
    int count = 0;
    if (allocator.state != TAKEN || allocator.entry[FRACTION_SET] < 0 || !driver ||
        driver->device_count(&count) != CUDA_SUCCESS)
        return;
    load(FRACTION_SET, &set);
    for (int device = 0; device < count; device++) {
        double fraction = set(allocator.object, (uintptr_t)device);
        if (fraction < 1)
            segalloc_torch_memory_fraction(fraction, device);
    }
}

typedef void enable_fn(void *self, bool on);
typedef bool is_enabled_fn(const void *self);
typedef void (*deleter_fn(const void *self))(void *);

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
    if (sg_torch_mode_known())
        replace(is_enabled_entry(), allocator.theirs[is_enabled_entry()]);
    memcpy(&theirs, &allocator.theirs[is_enabled_entry()], sizeof theirs);
    return theirs(self);
}

void sg_torch_allocator_watch(void)
{
    if (atomic_flag_test_and_set(&allocator.busy))
        return; /* another thread does it, and may wait for the loader's lock, which this one may hold */
    if (allocator.state == UNTRIED && find() && allocator.has_switch) {
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

/* What frees a block of the cache, or one without it: PyTorch says what goes with its present setting. Not while it
   makes up its mind, which it does once and under a lock. */
static void note_deleter(bool on)
{
    deleter_fn *deleter;
    load(RAW_DELETER, &deleter);
    if (on)
        allocator.cached_delete = deleter(allocator.object);
    else
        allocator.uncached_delete = deleter(allocator.object);
}

bool sg_torch_allocator_cache(bool on)
{
    if (allocator.state != TAKEN || !allocator.has_switch)
        return false;
    if (on)
        note_deleter(false);
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
    note_deleter(true);
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
