/* PyTorch's own allocator, an object of a class that it does not export: where its virtual functions stand, and calls of
   them.

   Nouns. The *table* is the class's list of virtual functions; the object begins with its address. An *entry* is a place in
   the table. The *switch* turns PyTorch's cache on and off (`enable`, `isEnabled`), from 2.9 on.

   Why. PyTorch has no interface by which a library could be its allocator and keep its own cache for pools. Its functions
   can be called by the table, and be replaced there (torch_overrides.h).

   How. torch::cuda::CUDAPluggableAllocator has the same base, so the same table, and is exported with the names of its
   functions. The entries are found there by name. The object is the one in force, if its table lies in libc10_cuda.so.

   Limits. PyTorch 2.5 to 2.15, 120 functions. A release that lacks a name is left alone, and its cache stays on.

   For example, in PyTorch 2.11 the exported class's function at entry 31 is named beginAllocateToPool. So entry 31 of the
   allocator's own table, whose functions have no names, is that function of the cache. */
#ifndef SG_TORCH_ALLOCATOR_H
#define SG_TORCH_ALLOCATOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions that are called or replaced, by what their mangled names have behind that of their class. Source:
   libtorch_cuda.so of PyTorch 2.5 to 2.15, where only parameters and places differ. */
#define SG_TORCH_FUNCTIONS(X)                   \
    X(ALLOCATE, "8allocateEm")                  \
    X(RAW_DELETER, "11raw_deleterEv")           \
    X(COPY, "9copy_dataEPvPKvm")                \
    X(EMPTY_CACHE, "10emptyCacheE")             \
    X(MEMORY_FRACTION, "17setMemoryFractionE")  \
    X(FRACTION_SET, "17getMemoryFractionE")     \
    X(STATISTICS, "14getDeviceStatsE")          \
    X(RESET_PEAKS, "14resetPeakStatsE")         \
    X(RAW_ALLOC, "9raw_allocEm")                \
    X(RAW_DELETE, "10raw_deleteEPv")            \
    X(CACHE_INFO, "9cacheInfoE")                \
    X(BEGIN_POOL, "19beginAllocateToPoolE")     \
    X(END_POOL, "17endAllocateToPoolE")         \
    X(RESET_TOTALS, "21resetAccumulatedStatsE") \
    X(HISTORY, "13recordHistoryE")              \
    X(OBSERVER, "25attachOutOfMemoryObserverE") \
    X(SNAPSHOT, "8snapshotE")                   \
    X(SHARE, "14shareIpcHandleEPv")             \
    X(RECORD, "12recordStreamE")

enum sg_torch_function {
#define FUNCTION(name, text) SG_TORCH_AT_##name,
    SG_TORCH_FUNCTIONS(FUNCTION)
#undef FUNCTION
        SG_TORCH_FUNCTIONS_COUNT
};

/* Before a table stand the two words that the C++ ABI has there. */
enum { SG_TORCH_ENTRIES_MAX = 120, SG_TORCH_WORDS_BEFORE = 2 };

/* PyTorch has `enable` and `isEnabled` right before `cacheInfo`, neither of them exported; releases that lack them have
   functions there that are. */
enum { SG_TORCH_BEFORE_ENABLE = 2, SG_TORCH_BEFORE_IS_ENABLED = 1 };

/* The state of the object. */
enum sg_torch_taken {
    SG_TORCH_UNTRIED,
    SG_TORCH_WATCHED,  /* our table is in force, with nothing in it that PyTorch would notice */
    SG_TORCH_TAKEN,    /* our table answers where PyTorch's cache would answer wrongly */
    SG_TORCH_NOT_TAKEN /* it can't be: nothing is changed */
};

/* Changed by the one thread that has set `busy`, read by all once PyTorch's mode is settled. */
struct sg_torch_layout;
struct sg_torch_allocator {
    void **object;                       /* the allocator, which begins with the address of its table */
    void *const *theirs;                 /* its own table */
    int entry[SG_TORCH_FUNCTIONS_COUNT]; /* below 0: this release lacks the function */
    void (*cached_delete)(void *);       /* frees a block of the cache */
    bool has_switch;
    const struct sg_torch_layout *layout; /* NULL: not known */
    enum sg_torch_taken state;
    atomic_flag busy;
};
extern struct sg_torch_allocator sg_torch_allocator __attribute__((visibility("hidden")));

/* PyTorch asks whether to cache before it allocates, frees, or names what frees a block. For one call of ours the answer may
   be given by this thread instead of the switch. */
enum sg_torch_answers { SG_TORCH_ANSWER_NONE, SG_TORCH_ANSWER_NO, SG_TORCH_ANSWER_YES };
struct sg_torch_answer {
    enum sg_torch_answers given;
    unsigned asked; /* how often PyTorch has asked this thread */
};
extern _Thread_local struct sg_torch_answer sg_torch_answer __attribute__((visibility("hidden")));

typedef void sg_torch_words_fn(void *self, uintptr_t first, uintptr_t second);
typedef void (*sg_torch_deleter_fn(const void *self))(void *);
typedef bool sg_torch_is_enabled_fn(const void *self);

/* Finds entries and object. Returns how many functions the exported table has; 0: this PyTorch lacks the names, or another
   allocator is in force. For the thread that has set `busy`; takes the loader's lock. */
int sg_torch_allocator_find(void);

/* The object in force now, NULL: there is none. Takes the loader's lock. */
void **sg_torch_allocator_current(void);

/* The allocator's own function, into a pointer to a function of its type. Once it was found. */
void sg_torch_allocator_load(enum sg_torch_function function, void *ret);

/* Keeps to the limits that set_per_process_memory_fraction() has set before; later ones are kept to as they come. */
void sg_torch_allocator_limit(void);

/* Has PyTorch's allocator cache (again), or not: what it serves from then on. Blocks are freed as they were
   allocated. True if it does so: PyTorch before 2.9 has no such switch. Once the object is taken. */
bool sg_torch_allocator_cache(bool on);

/* True if PyTorch asks, at each allocation and in the thread that makes it, whether to cache. Then the answer may differ
   from one to the next. Not while it decides whether to cache at all. */
bool sg_torch_allocator_routes(void);

/* Has PyTorch's cache give what it holds idle to the driver; whether it was asked. */
bool sg_torch_allocator_empty(void);

/* A block out of PyTorch's cache, whether that is on or not, in memory of the driver's; and its free. The driver
   must have that much: no C++ exception may come. On the current device. */
void *sg_torch_allocator_get(size_t bytes);
void sg_torch_allocator_put(void *block);

/* Copies on the current device by PyTorch's own function; the caller waits. */
void sg_torch_allocator_copy(void *to, const void *from, size_t bytes);

#endif
