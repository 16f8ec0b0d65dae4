#include "process/glibc_symver.h"

#include "torch/torch_allocator.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "process/process.h"
#include "segalloc/segalloc.h"
#include "torch/torch_current.h"
#include "torch/torch_symbols.h"

struct sg_torch_allocator sg_torch_allocator = {.busy = ATOMIC_FLAG_INIT};
_Thread_local struct sg_torch_answer sg_torch_answer;

static const char *allocator_name_of(void *function)
{
    Dl_info info;
    return dladdr(function, &info) && info.dli_saddr == function && info.dli_sname ? info.dli_sname : "";
}

/* Names of functions of the exported class, by dladdr(), each looked for by its mangled end. The switch is the two
   functions before cacheInfo, if nobody exports them. */
static bool allocator_find_entries(void *const *table, int count)
{
    static const char *const texts[] = {
#define FUNCTION(name, text) [SG_TORCH_AT_##name] = "22CUDAPluggableAllocator" text,
        SG_TORCH_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    for (int f = 0; f < SG_TORCH_FUNCTIONS_COUNT; f++)
        sg_torch_allocator.entry[f] = -1;
    for (int entry = 0; entry < count; entry++) {
        const char *name = allocator_name_of(table[entry]);
        for (int f = 0; f < SG_TORCH_FUNCTIONS_COUNT; f++) {
            if (strstr(name, texts[f]))
                sg_torch_allocator.entry[f] = entry;
        }
    }
    for (int f = 0; f < SG_TORCH_FUNCTIONS_COUNT; f++) {
        if (sg_torch_allocator.entry[f] < 0 && f != SG_TORCH_AT_FRACTION_SET &&
            f != SG_TORCH_AT_RECORD) /* PyTorch 2.5 lacks the first */
            return false;
    }
    int info = sg_torch_allocator.entry[SG_TORCH_AT_CACHE_INFO];
    sg_torch_allocator.has_switch = info > SG_TORCH_BEFORE_ENABLE &&
                                    !*allocator_name_of(table[info - SG_TORCH_BEFORE_ENABLE]) &&
                                    !*allocator_name_of(table[info - SG_TORCH_BEFORE_IS_ENABLED]);
    return true;
}

/* The exported class's table, and how many functions it has; 0: there is none. */
static int allocator_find_table(void *const **ret)
{
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    void **table =
        sg_torch_symbol("libtorch_cuda.so", "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE");
    if (!table || !dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || info.dli_saddr != table)
        return 0;
    int count = (int)(symbol->st_size / sizeof *table) - SG_TORCH_WORDS_BEFORE;
    *ret = table + SG_TORCH_WORDS_BEFORE;
    return count > 0 && count <= SG_TORCH_ENTRIES_MAX ? count : 0;
}

void **sg_torch_allocator_current(void)
{
    void ***current = sg_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    return current ? __atomic_load_n(current, __ATOMIC_ACQUIRE) : NULL;
}

/* PyTorch's own allocator: an object with static storage in the library that has its code. */
static bool allocator_find_object(void)
{
    Dl_info info;
    void **object = sg_torch_allocator_current();
    if (!object || !dladdr(*object, &info) || !info.dli_fname || !strstr(info.dli_fname, "libc10_cuda.so"))
        return false;
    sg_torch_allocator.object = object;
    sg_torch_allocator.theirs = *object;
    return true;
}

int sg_torch_allocator_find(void)
{
    void *const *exported;
    int count = allocator_find_table(&exported);
    return count && allocator_find_entries(exported, count) && allocator_find_object() ? count : 0;
}

void sg_torch_allocator_load(enum sg_torch_function function, void *ret)
{
    memcpy(ret, &sg_torch_allocator.theirs[sg_torch_allocator.entry[function]], sizeof(void *));
}

typedef void enable_fn(void *self, bool on);
static void allocator_set(bool on)
{
    enable_fn *enable;
    memcpy(&enable,
        &sg_torch_allocator.theirs[sg_torch_allocator.entry[SG_TORCH_AT_CACHE_INFO] - SG_TORCH_BEFORE_ENABLE],
        sizeof enable);
    enable(sg_torch_allocator.object, on);
}

/* PyTorch's own isEnabled(), which nobody exports: it stands right before cacheInfo. */
static bool allocator_is_set(void)
{
    sg_torch_is_enabled_fn *is_enabled;
    memcpy(&is_enabled,
        &sg_torch_allocator.theirs[sg_torch_allocator.entry[SG_TORCH_AT_CACHE_INFO] - SG_TORCH_BEFORE_IS_ENABLED],
        sizeof is_enabled);
    return is_enabled(sg_torch_allocator.object);
}

typedef double fraction_set_fn(void *self, uintptr_t device);

/* Fractions below 1 were set by the program before the object was taken. They hold for memory of ours too. */
void sg_torch_allocator_limit(void)
{
    const struct sg_driver *driver = sg_process_driver();
    fraction_set_fn *fraction_of;
    int count = 0;
    if (sg_torch_allocator.state != SG_TORCH_TAKEN || sg_torch_allocator.entry[SG_TORCH_AT_FRACTION_SET] < 0 ||
        !driver || driver->device_count(&count) != CUDA_SUCCESS)
        return;
    sg_torch_allocator_load(SG_TORCH_AT_FRACTION_SET, &fraction_of);
    for (int device = 0; device < count; device++) {
        double fraction = fraction_of(sg_torch_allocator.object, (uintptr_t)device);
        if (fraction < 1)
            segalloc_torch_memory_fraction(fraction, device);
    }
}

/* Notes the function that frees a block of the cache. Not while PyTorch makes up its mind whether to have one, which it
   does once and under a lock. */
static void allocator_note_deleter(void)
{
    sg_torch_deleter_fn *deleter;
    sg_torch_allocator_load(SG_TORCH_AT_RAW_DELETER, &deleter);
    sg_torch_allocator.cached_delete = deleter(sg_torch_allocator.object);
}

/* Asks twice for the deleter of a block, with opposite answers. If PyTorch asked each time and named two deleters, an
   answer decides each time. */
bool sg_torch_allocator_routes(void)
{
    sg_torch_deleter_fn *deleter;
    if (sg_torch_allocator.state != SG_TORCH_TAKEN || !sg_torch_allocator.has_switch || !sg_torch_has_streams())
        return false;
    unsigned before = sg_torch_answer.asked;
    sg_torch_allocator_load(SG_TORCH_AT_RAW_DELETER, &deleter);
    sg_torch_answer.given = SG_TORCH_ANSWER_YES;
    void (*cached)(void *) = deleter(sg_torch_allocator.object);
    sg_torch_answer.given = SG_TORCH_ANSWER_NO;
    void (*uncached)(void *) = deleter(sg_torch_allocator.object);
    sg_torch_answer.given = SG_TORCH_ANSWER_NONE;
    return sg_torch_answer.asked == before + 2 && cached != uncached;
}

bool sg_torch_allocator_empty(void)
{
    sg_torch_words_fn *theirs;
    if (sg_torch_allocator.state != SG_TORCH_TAKEN)
        return false;
    sg_torch_allocator_load(SG_TORCH_AT_EMPTY_CACHE, &theirs);
    theirs(sg_torch_allocator.object, 0, 0);
    return true;
}

bool sg_torch_allocator_cache(bool on)
{
    if (sg_torch_allocator.state != SG_TORCH_TAKEN || !sg_torch_allocator.has_switch)
        return false;
    allocator_set(on);
    return allocator_is_set() == on;
}

/* With the switch on for the moment, and inside, so that the cache's own cudaMalloc is the driver's. The deleter is the
   cache's now, and noted. */
void *sg_torch_allocator_get(size_t bytes)
{
    typedef void *alloc_fn(void *self, size_t bytes);
    alloc_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_RAW_ALLOC, &theirs);
    bool was_on = allocator_is_set(), outer = sg_thread_enter();
    allocator_set(true);
    allocator_note_deleter();
    void *block = theirs(sg_torch_allocator.object, bytes);
    allocator_set(was_on);
    sg_thread_leave(outer);
    return block;
}

void sg_torch_allocator_put(void *block)
{
    sg_torch_allocator.cached_delete(block);
}

void sg_torch_allocator_copy(void *to, const void *from, size_t bytes)
{
    typedef void copy_fn(const void *self, void *to, const void *from, size_t bytes);
    copy_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_COPY, &theirs);
    theirs(sg_torch_allocator.object, to, from, bytes);
}
