/* The replaced functions, each after PyTorch's own parameters; then the two steps, watch and take.

   Parameters are words as the Itanium C++ ABI passes them. A pair of two words takes two registers, a std::function an
   address, a structure larger than two words is returned by address. A parameter that an older release lacks is an
   unread register. */
#include "process/glibc_symver.h"

#include "torch/torch_overrides.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config/conf.h"
#include "process/process.h"
#include "process/upward_calls.h"
#include "segalloc/segalloc.h"
#include "torch/torch_allocator.h"
#include "torch/torch_counts.h"
#include "torch/torch_current.h"
#include "torch/torch_layout.h"
#include "torch/torch_observers.h"
#include "torch/torch_pools.h"
#include "torch/torch_sent.h"
#include "torch/torch_snapshot.h"
#include "torch/torch_switch.h"
#include "track/free_policy.h"
#include "track/torch_mode.h"

/* Behind the exported table there may be functions of the other class alone. */
enum { ENTRIES_MORE = 8 };

/* Our table in place of the allocator's. */
static void *ours[SG_TORCH_WORDS_BEFORE + SG_TORCH_ENTRIES_MAX + ENTRIES_MORE];

typedef void pool_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter);
typedef void delete_fn(void *self, void *block);

/* The parameters are a device, a pool's number, which is a pair of words, and a std::function, which is passed by
   address and emptied. */
static void override_begin_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, void *filter)
{
    pool_fn *theirs;
    struct sg_cxx_function copy = sg_cxx_function_copy(filter);
    sg_torch_allocator_load(SG_TORCH_AT_BEGIN_POOL, &theirs);
    sg_torch_pool_begins(first, second);
    theirs(self, device, first, second, filter);
    sg_torch_pools_begin((int8_t)device, (struct sg_torch_pool){first, second}, copy);
}

typedef void end_pool_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second);

static void override_end_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second)
{
    end_pool_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_END_POOL, &theirs);
    sg_torch_pools_end((int8_t)device, (struct sg_torch_pool){first, second});
    theirs(self, device, first, second);
}

typedef void history_fn(void *self, uintptr_t on, uintptr_t recorder, uintptr_t most, uintptr_t when, uintptr_t clear,
    uintptr_t skip);

/* Its last parameters came with time: what a release lacks it doesn't read. */
static void override_history(void *self, uintptr_t on, uintptr_t recorder, uintptr_t most, uintptr_t when, uintptr_t clear,
    uintptr_t skip)
{
    history_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_HISTORY, &theirs);
    sg_torch_history((uint8_t)on);
    theirs(self, on, recorder, most, when, clear, skip);
}

typedef void observer_fn(void *self, void *observer);

static void override_observer(void *self, void *observer)
{
    observer_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_OBSERVER, &theirs);
    sg_torch_observers_add(sg_cxx_function_copy(observer));
    theirs(self, observer);
}

/* Newer releases empty one pool, named by two words. Older ones read no parameter. */
static void override_empty_cache(void *self, uintptr_t first, uintptr_t second)
{
    sg_torch_words_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_EMPTY_CACHE, &theirs);
    theirs(self, first, second);
    segalloc_torch_reset();
}

typedef void fraction_fn(void *self, double fraction, uintptr_t device);

/* PyTorch's refuses a fraction or a device that cannot be, by an exception. */
static void override_memory_fraction(void *self, double fraction, uintptr_t device)
{
    fraction_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_MEMORY_FRACTION, &theirs);
    theirs(self, fraction, device);
    if (sg_torch_direct())
        segalloc_torch_memory_fraction(fraction, (int8_t)device);
}

static void override_reset_peaks(void *self, uintptr_t device, uintptr_t unused)
{
    sg_torch_words_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_RESET_PEAKS, &theirs);
    theirs(self, device, unused);
    sg_torch_counts_reset((int8_t)device);
}

typedef void spare_fn(void *self, uintptr_t device, uintptr_t first, uintptr_t second, uintptr_t on);

/* Its place is known from the release. */
static int override_spare_entry(void)
{
    int before = sg_torch_allocator.layout ? sg_torch_allocator.layout->spare_pool : 0;
    return before ? sg_torch_allocator.entry[SG_TORCH_AT_SHARE] - before : -1;
}

/* setUseOnOOM(): PyTorch gets the pool a use, and its cache has to be on for that. */
static void override_spare_pool(void *self, uintptr_t device, uintptr_t first, uintptr_t second, uintptr_t on)
{
    spare_fn *theirs;
    memcpy(&theirs, &sg_torch_allocator.theirs[override_spare_entry()], sizeof theirs);
    theirs(self, device, first, second, on);
    if ((uint8_t)on)
        sg_torch_spare_pool();
}

static void override_reset_totals(void *self, uintptr_t device, uintptr_t unused)
{
    sg_torch_words_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_RESET_TOTALS, &theirs);
    theirs(self, device, unused);
    sg_torch_counts_reset_totals((int8_t)device);
}

/* at::DataPtr: address, context and deleter, device. */
struct data_ptr {
    uintptr_t words[4];
};
typedef struct data_ptr allocate_fn(void *self, size_t bytes);
typedef void *raw_alloc_fn(void *self, size_t bytes);

/* Later allocations of the thread, by whatever module, are no segments of the cache's. */
static struct data_ptr override_allocate(void *self, size_t bytes)
{
    allocate_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_ALLOCATE, &theirs);
    struct data_ptr got = theirs(self, bytes);
    sg_self.torch_cached = false;
    return got;
}

/* Raw memory of PyTorch's, which has no tensor. */
static void *override_raw_alloc(void *self, size_t bytes)
{
    raw_alloc_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_RAW_ALLOC, &theirs);
    void *got = theirs(self, bytes);
    sg_self.torch_cached = false;
    return got;
}

/* PyTorch frees by what its cache is set to now; the block is freed as it was allocated. */
static void override_raw_delete(void *self, void *block)
{
    delete_fn *theirs;
    enum sg_torch_answers outer = sg_torch_answer.given;
    sg_torch_allocator_load(SG_TORCH_AT_RAW_DELETE, &theirs);
    if (sg_torch_pools_seen() || sg_torch_switched())
        sg_torch_answer.given = sg_torch_is_direct(block) ? SG_TORCH_ANSWER_NO : SG_TORCH_ANSWER_YES;
    theirs(self, block);
    sg_torch_answer.given = outer;
}

/* With PyTorch's pools, what frees a block out of them is looked for among the tensors of a graph. */
static void (*override_raw_deleter(const void *self))(void *)
{
    sg_torch_deleter_fn *theirs;
    enum sg_torch_answers outer = sg_torch_answer.given;
    sg_torch_allocator_load(SG_TORCH_AT_RAW_DELETER, &theirs);
    if (sg_torch_pools_seen())
        sg_torch_answer.given = SG_TORCH_ANSWER_YES;
    void (*deleter)(void *) = theirs(self);
    sg_torch_answer.given = outer;
    return deleter;
}

/* The parameters are a c10::DataPtr by address, which begins with its pointer, and a stream, which is a pair of words.
   PyTorch itself ignores blocks that its cache has not. Source: c10/core/Allocator.h. */
typedef void record_fn(void *self, void *const *data, uintptr_t first, uintptr_t second);

/* Tensors of ours are recorded here as well. The stream is made a handle first, since the core knows handles. */
static void override_record(void *self, void *const *data, uintptr_t first, uintptr_t second)
{
    record_fn *theirs;
    CUstream stream;
    sg_torch_allocator_load(SG_TORCH_AT_RECORD, &theirs);
    theirs(self, data, first, second);
    if (sg_torch_is_direct(*data) && sg_torch_stream_handle(first, second, &stream))
        (void)sg_upward_calls.record_stream(*data, stream);
}

/* {ptrdiff_t offset; std::string handle}, whose text is longer than what fits into the object itself. */
struct shareable {
    uintptr_t words[5];
};
typedef struct shareable share_fn(void *self, void *pointer);

static struct shareable override_share(void *self, void *pointer)
{
    share_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_SHARE, &theirs);
    void *copy = sg_torch_is_direct(pointer) ? sg_torch_sent_copy(pointer) : NULL;
    return theirs(self, copy ? copy : pointer);
}

#ifdef __x86_64__
typedef void *statistics_fn(void *ret, void *self, uintptr_t device);

/* The structure, whose size differs from release to release, is returned by address; other architectures have no
   parameter for that. */
static void *override_statistics(void *ret, void *self, uintptr_t device)
{
    statistics_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_STATISTICS, &theirs);
    theirs(ret, self, device);
    sg_torch_counts_add(ret, sg_torch_allocator.layout->map_bytes, (int8_t)device);
    return ret;
}

typedef void *snapshot_fn(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces);

/* The snapshot is one pool's, or that of all memory where the number is 0, 0. */
static void *override_snapshot(void *ret, void *self, uintptr_t first, uintptr_t second, uintptr_t traces)
{
    snapshot_fn *theirs;
    sg_torch_allocator_load(SG_TORCH_AT_SNAPSHOT, &theirs);
    theirs(ret, self, first, second, traces);
    if (!(first | second) && sg_torch_direct())
        sg_torch_snapshot_add(ret);
    return ret;
}
#endif

#ifdef __x86_64__
/* True if the statistics of this release are known, so that they may be added to. If not, a line says so. */
static bool override_knows_statistics(void)
{
    char version[64], line[256];
    sg_torch_allocator.layout = sg_torch_layout(sg_torch_allocator.theirs, version, sizeof version);
    if (sg_torch_allocator.layout)
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
        memcpy(&ours[SG_TORCH_WORDS_BEFORE + sg_torch_allocator.entry[which]], &ours_, sizeof ours_); \
    } while (0)

/* Copies the table, with nothing replaced in it yet. False: this PyTorch lacks the names, or another allocator is in force. */
static bool override_find(void)
{
    int count = sg_torch_allocator_find();
    if (!count)
        return false;
    memcpy(ours, sg_torch_allocator.theirs - SG_TORCH_WORDS_BEFORE, (size_t)(SG_TORCH_WORDS_BEFORE + count + ENTRIES_MORE) * sizeof *ours);
    return true;
}

static void override_use_ours(void)
{
    __atomic_store_n(sg_torch_allocator.object, ours + SG_TORCH_WORDS_BEFORE, __ATOMIC_RELEASE);
}

static int override_is_enabled_entry(void)
{
    return sg_torch_allocator.entry[SG_TORCH_AT_CACHE_INFO] - SG_TORCH_BEFORE_IS_ENABLED;
}

static void override_replace(int entry, void *function)
{
    __atomic_store_n(&ours[SG_TORCH_WORDS_BEFORE + entry], function, __ATOMIC_RELEASE);
}

/* PyTorch 2.14 and 2.15 read their switch first, and ask whether to cache only if it is on; 2.12 asks first. A switch
   turned off by that question would come too late for the tensor that is being made. So the question is brought about
   from here. Source: the code of NativeCachingAllocator::allocate() in the wheels of 2.12.1, 2.14.1 and 2.15.0. */
static bool override_is_enabled(const void *self)
{
    static _Thread_local bool asks;
    sg_torch_deleter_fn *deleter;
    sg_torch_is_enabled_fn *theirs;
    if (!asks && !sg_torch_mode_known()) {
        asks = true;
        sg_torch_allocator_load(SG_TORCH_AT_RAW_DELETER, &deleter);
        (void)deleter(self);
        asks = false;
    }
    if (sg_torch_mode_known() && !sg_torch_direct())
        override_replace(override_is_enabled_entry(), sg_torch_allocator.theirs[override_is_enabled_entry()]);
    memcpy(&theirs, &sg_torch_allocator.theirs[override_is_enabled_entry()], sizeof theirs);
    sg_torch_answer.asked++;
    if (sg_torch_answer.given != SG_TORCH_ANSWER_NONE)
        return sg_torch_answer.given == SG_TORCH_ANSWER_YES;
    bool caches = theirs(self);
    if (caches && !asks && sg_torch_direct()) /* what decides reads the switch first */
        sg_torch_caches_segments();
    return sg_self.torch_cached = caches || sg_torch_pool_allocates();
}

/* Replaces what changes nothing that PyTorch does: calls that may come before its first allocation and must be known
   then. */
static void override_watched(void)
{
    REPLACE(SG_TORCH_AT_BEGIN_POOL, override_begin_pool);
    REPLACE(SG_TORCH_AT_END_POOL, override_end_pool);
    REPLACE(SG_TORCH_AT_HISTORY, override_history);
    REPLACE(SG_TORCH_AT_OBSERVER, override_observer);
    char version[64];
    sg_torch_allocator.layout = sg_torch_layout(sg_torch_allocator.theirs, version, sizeof version);
    if (override_spare_entry() >= 0) {
        spare_fn *function = override_spare_pool;
        memcpy(&ours[SG_TORCH_WORDS_BEFORE + override_spare_entry()], &function, sizeof function);
    }
}

static void override_watch_switch(void)
{
    sg_torch_is_enabled_fn *function = override_is_enabled;
    if (sg_torch_allocator.has_switch)
        memcpy(&ours[SG_TORCH_WORDS_BEFORE + override_is_enabled_entry()], &function, sizeof function);
}

/* All replacements, once the mode is being decided. Functions that a release lacks are left out, and so is the snapshot
   where its structures are unknown. */
static void override_all(void)
{
    override_watched();
    override_watch_switch();
    if (sg_torch_allocator.has_switch) {
        REPLACE(SG_TORCH_AT_RAW_DELETER, override_raw_deleter);
        REPLACE(SG_TORCH_AT_ALLOCATE, override_allocate);
        REPLACE(SG_TORCH_AT_RAW_ALLOC, override_raw_alloc);
    }
    REPLACE(SG_TORCH_AT_RESET_TOTALS, override_reset_totals);
    REPLACE(SG_TORCH_AT_EMPTY_CACHE, override_empty_cache);
    REPLACE(SG_TORCH_AT_MEMORY_FRACTION, override_memory_fraction);
    REPLACE(SG_TORCH_AT_RESET_PEAKS, override_reset_peaks);
    REPLACE(SG_TORCH_AT_RAW_DELETE, override_raw_delete);
    REPLACE(SG_TORCH_AT_SHARE, override_share);
    if (sg_torch_allocator.entry[SG_TORCH_AT_RECORD] >= 0 && sg_torch_has_streams()) {
        REPLACE(SG_TORCH_AT_RECORD, override_record);
        sg_memory_record_stream_hooked();
    }
#ifdef __x86_64__
    if (override_knows_statistics())
        REPLACE(SG_TORCH_AT_STATISTICS, override_statistics);
    if (sg_torch_allocator.layout && sg_torch_allocator.layout->snapshot)
        REPLACE(SG_TORCH_AT_SNAPSHOT, override_snapshot);
#endif
}

/* Only the switch's question and calls of long-term meaning are replaced, so PyTorch behaves as before. Without a switch
   nothing depends on those calls but the lines that pytorch:direct has for them. */
void sg_torch_overrides_watch(void)
{
    if (atomic_flag_test_and_set(&sg_torch_allocator.busy))
        return; /* another thread does it, and may wait for the loader's lock, which this one may hold */
    if (sg_torch_allocator.state == SG_TORCH_UNTRIED && override_find() &&
        (sg_torch_allocator.has_switch || sg_process_conf()->pytorch == SG_PYTORCH_DIRECT)) {
        override_watched();
        override_watch_switch();
        override_use_ours();
        sg_torch_allocator.state = SG_TORCH_WATCHED;
    }
    atomic_flag_clear(&sg_torch_allocator.busy);
}

/* A watched object may have been replaced by a pluggable allocator since; then it is left alone. */
static bool override_take(void)
{
    if (sg_torch_allocator.state == SG_TORCH_WATCHED ? sg_torch_allocator_current() != sg_torch_allocator.object : !override_find())
        return false;
    override_all();
    override_use_ours();
    return true;
}

/* Waits for a thread that watches. The first call decides for good. */
bool sg_torch_overrides_take(void)
{
    while (atomic_flag_test_and_set(&sg_torch_allocator.busy))
        sched_yield();
    if (sg_torch_allocator.state == SG_TORCH_UNTRIED || sg_torch_allocator.state == SG_TORCH_WATCHED)
        sg_torch_allocator.state = override_take() ? SG_TORCH_TAKEN : SG_TORCH_NOT_TAKEN;
    bool taken = sg_torch_allocator.state == SG_TORCH_TAKEN;
    atomic_flag_clear(&sg_torch_allocator.busy);
    return taken;
}

/* The object may have been replaced since: by a pluggable allocator, which answers for itself. */
bool sg_torch_overrides_answer(void)
{
#ifdef __x86_64__
    char version[64];
    sg_torch_overrides_watch();
    if ((sg_torch_allocator.state != SG_TORCH_WATCHED && sg_torch_allocator.state != SG_TORCH_TAKEN) || sg_torch_allocator_current() != sg_torch_allocator.object)
        return false;
    const struct sg_torch_layout *layout = sg_torch_layout(sg_torch_allocator.theirs, version, sizeof version);
    return sg_torch_allocator.has_switch && layout && layout->snapshot;
#else
    return false;
#endif
}
