#include "glibc.h"

#include "torch_allocator.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "life.h"
#include "resolve.h"
#include "segalloc/segalloc.h"
#include "torch.h"
#include "torch_counts.h"
#include "torch_sent.h"

/* The functions that are called or replaced, by what their mangled names have behind that of their class. Source:
   libtorch_cuda.so of PyTorch 2.5 to 2.15, where only parameters and places differ. */
#define FUNCTIONS(X) \
    X(RAW_DELETER, "11raw_deleterEv") \
    X(COPY, "9copy_dataEPvPKvm") \
    X(EMPTY_CACHE, "10emptyCacheE") \
    X(STATISTICS, "14getDeviceStatsE") \
    X(RESET_PEAKS, "14resetPeakStatsE") \
    X(RAW_ALLOC, "9raw_allocEm") \
    X(RAW_DELETE, "10raw_deleteEPv") \
    X(CACHE_INFO, "9cacheInfoE") \
    X(BEGIN_POOL, "19beginAllocateToPoolE") \
    X(SHARE, "14shareIpcHandleEPv")

enum function {
#define FUNCTION(name, text) name,
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    FUNCTION_COUNT
};

/* Behind the exported table there may be functions of the other class alone; and before it, the two words that the
   C++ ABI has there. */
enum { SLOTS_MAX = 120, SLOTS_MORE = 8, WORDS_BEFORE = 2 };

/* Releases with more functions have statistics that begin otherwise: PyTorch 2.15 has 57, 2.11 has 50. */
enum { FUNCTIONS_COUNTED = 50 };

static struct {
    void **object;               /* the allocator, which begins with the address of its table; NULL: not taken */
    void *const *theirs;         /* its own table */
    int slot[FUNCTION_COUNT];
    void (*cached_delete)(void *);
    void (*uncached_delete)(void *);
    bool has_switch;
} allocator;

static void *ours[WORDS_BEFORE + SLOTS_MAX + SLOTS_MORE];

/* PyTorch has `enable` and `isEnabled` right before `cacheInfo`, neither of them exported; releases that lack them have
   functions there that are. */
enum { BEFORE_ENABLE = 2, BEFORE_IS_ENABLED = 1 };

static const char *name_of(void *function)
{
    Dl_info info;
    return dladdr(function, &info) && info.dli_saddr == function && info.dli_sname ? info.dli_sname : "";
}

static bool find_slots(void *const *table, int count)
{
    static const char *const texts[] = {
#define FUNCTION(name, text) [name] = "22CUDAPluggableAllocator" text,
        FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    for (int f = 0; f < FUNCTION_COUNT; f++)
        allocator.slot[f] = -1;
    for (int slot = 0; slot < count; slot++) {
        const char *name = name_of(table[slot]);
        for (int f = 0; f < FUNCTION_COUNT; f++) {
            if (strstr(name, texts[f]))
                allocator.slot[f] = slot;
        }
    }
    for (int f = 0; f < FUNCTION_COUNT; f++) {
        if (allocator.slot[f] < 0)
            return false;
    }
    int info = allocator.slot[CACHE_INFO];
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
    return count > 0 && count <= SLOTS_MAX ? count : 0;
}

/* PyTorch's own allocator: an object with static storage in the library that has its code. */
static bool find_object(void)
{
    Dl_info info;
    void ***current = symbol_of("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    void **object = current ? __atomic_load_n(current, __ATOMIC_ACQUIRE) : NULL;
    if (!object || !dladdr(*object, &info) || !info.dli_fname || !strstr(info.dli_fname, "libc10_cuda.so"))
        return false;
    allocator.object = object;
    allocator.theirs = *object;
    return true;
}

/* The allocator's own function, into a pointer to a function of its type. */
static void load(enum function function, void *ret)
{
    memcpy(ret, &allocator.theirs[allocator.slot[function]], sizeof(void *));
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
    sg_torch_pool_begins();
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
    sg_torch_counts_add(ret, (int8_t)device);
    return ret;
}
#endif

#define REPLACE(which, function) \
    do { \
        __typeof__(&(function)) ours_ = function; \
        memcpy(&ours[WORDS_BEFORE + allocator.slot[which]], &ours_, sizeof ours_); \
    } while (0)

static bool take(void)
{
    void *const *exported;
    int count = find_table(&exported);
    if (!count || !find_slots(exported, count) || !find_object())
        return false;
    memcpy(ours, allocator.theirs - WORDS_BEFORE, (size_t)(WORDS_BEFORE + count + SLOTS_MORE) * sizeof *ours);
    REPLACE(BEGIN_POOL, begin_pool);
    REPLACE(EMPTY_CACHE, empty_cache);
    REPLACE(RESET_PEAKS, reset_peaks);
    REPLACE(RAW_DELETE, raw_delete);
    REPLACE(SHARE, share);
#ifdef __x86_64__
    if (count <= FUNCTIONS_COUNTED)
        REPLACE(STATISTICS, statistics);
#endif
    __atomic_store_n(allocator.object, ours + WORDS_BEFORE, __ATOMIC_RELEASE);
    return true;
}

bool sg_torch_allocator_take(void)
{
    static enum { UNTRIED, TAKEN, NOT_TAKEN } state;
    if (state == UNTRIED) {
        state = take() ? TAKEN : NOT_TAKEN;
        if (state == NOT_TAKEN)
            allocator.object = NULL;
    }
    return state == TAKEN;
}

typedef void enable_fn(void *self, bool on);
typedef bool is_enabled_fn(const void *self);
typedef void (*deleter_fn(const void *self))(void *);

static void set(bool on)
{
    enable_fn *enable;
    memcpy(&enable, &allocator.theirs[allocator.slot[CACHE_INFO] - BEFORE_ENABLE], sizeof enable);
    enable(allocator.object, on);
}

static bool is_set(void)
{
    is_enabled_fn *is_enabled;
    memcpy(&is_enabled, &allocator.theirs[allocator.slot[CACHE_INFO] - BEFORE_IS_ENABLED], sizeof is_enabled);
    return is_enabled(allocator.object);
}

/* What frees a block of the cache, or one without it: PyTorch says what goes with its present setting. Not while it
   makes up its mind, which it does once and under a lock. */
static void learn_deleter(bool on)
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
    if (!allocator.object || !allocator.has_switch)
        return false;
    if (on)
        learn_deleter(false);
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
    learn_deleter(true);
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
