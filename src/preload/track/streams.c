/* The streams that have a slot, a cache of them in each thread, and the flags that say how far order can be trusted.

   A thread's cache holds a stream's slot with the value of `changes` then. Whatever may change the meaning of a handle
   raises `changes`: a stream made or destroyed, a context ended, a device served for the first time.

   For example, thread A remembers stream 0x7f10 with `changes` 12. Thread B destroys it: `changes` is 13. A launches a
   kernel on a new stream of that handle. 12 is not 13, so the driver is asked for its number, and a new slot is made.
   */
#include "track/streams.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "track/captures.h"
#include "track/contexts.h"
#include "process/process.h"
#include "track/free_policy.h"
#include "base/wrap.h"

enum { STREAMS_MAX = 512 };

/* Streams that have a slot. Guarded by SG_LOCK_STREAMS, but for what is atomic. */
static struct {
    struct entry {
        bool live, untracked_order;
        bool foreign; /* of a stream of another device, which a block of this one is used on */
        int device;
        sg_slot slot;
        uint64_t key;
        CUcontext context;
        CUstream handle;
    } list[STREAMS_MAX];
    int used;                           /* entries up to here may be live */
    atomic_uint changes;                /* of what a handle means */
    _Atomic uint64_t served;            /* devices, a bit each */
    atomic_bool missed;                 /* a stream of one of them has no slot */
    atomic_bool any_foreign;
    atomic_bool any_untracked_order;
    atomic_bool watch_shown;
    atomic_bool graphs_show; /* work that the host or an event may show became part of a graph */
    atomic_bool context_waited;
    atomic_bool waited_early;           /* before order was followed, some stream waited for what can't be */
    atomic_bool follow_late;
    _Atomic(const char *) untracked_by; /* the first call that nothing here knows */
} streams = {.changes = 1};

atomic_bool sg_following_order;

/* From now on every hook of order works. Whatever was queued before is unknown, so `follow_late` says that there may
   have been something. */
void sg_follow(void)
{
    if (sg_following())
        return;
    if (sg_process_core())
        atomic_store(&streams.follow_late, true);
    atomic_store(&sg_following_order, true);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
}

/* With free_sync:strict or free_sync:event no free goes by streams, so nothing is followed for this caller. */
void sg_follow_as_configured(void)
{
    if (sg_following())
        return;
    enum sg_free_sync wanted = sg_process_conf()->free_sync;
    if (wanted == SG_FREE_SYNC_AUTO || wanted == SG_FREE_SYNC_STREAM)
        sg_follow();
}

bool sg_follow_late(void)
{
    return atomic_load_explicit(&streams.follow_late, memory_order_relaxed);
}

void sg_streams_untrack(const char *by)
{
    const char *none = NULL;
    if (atomic_compare_exchange_strong(&streams.untracked_by, &none, by))
        atomic_fetch_add(&sg_fast_path_epoch, 1);
}

const char *sg_streams_untracked_by(void)
{
    return atomic_load_explicit(&streams.untracked_by, memory_order_acquire);
}

bool sg_streams_untracked(void)
{
    return sg_streams_untracked_by() != NULL;
}

static_assert(SG_DEVICES_MAX <= 64, "a bit each");

/* Streams of the device may have been met before, without a slot: caches are looked at anew. */
void sg_streams_serve(int device)
{
    uint64_t bit = device >= 0 && device < SG_DEVICES_MAX ? UINT64_C(1) << device : 0;
    if ((atomic_load_explicit(&streams.served, memory_order_relaxed) & bit) == bit)
        return;
    atomic_fetch_or(&streams.served, bit);
    atomic_fetch_add(&streams.changes, 1);
}

bool sg_streams_any_served(void)
{
    return atomic_load(&streams.served) != 0;
}

static bool device_is_served(int device)
{
    return device >= 0 && device < SG_DEVICES_MAX &&
           atomic_load_explicit(&streams.served, memory_order_relaxed) >> device & 1;
}

bool sg_streams_complete(void)
{
    return !atomic_load_explicit(&streams.missed, memory_order_relaxed);
}

static void stream_miss(void)
{
    if (!sg_streams_complete())
        return;
    atomic_store(&streams.missed, true);
    atomic_fetch_add(&sg_fast_path_epoch, 1);
}

static bool stream_is_default(CUstream stream)
{
    return stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The entry of a stream by its number. `device`: the one whose memory it uses, where that is not its own; below 0: its
   own. */
static int stream_entry_locked(uint64_t key, int device)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_STREAMS);
    for (int i = 0; i < streams.used; i++) {
        const struct entry *entry = &streams.list[i];
        if (entry->live && entry->key == key &&
            (device < 0 ? !entry->foreign : entry->foreign && entry->device == device))
            return i;
    }
    return -1;
}

/* An entry that no live stream has; below 0: all 512 are in use. */
static int stream_free_entry_locked(void)
{
    SG_ASSERT_PROCESS_LOCK(SG_LOCK_STREAMS);
    for (int i = 0; i < streams.used; i++) {
        if (!streams.list[i].live)
            return i;
    }
    return streams.used < STREAMS_MAX ? streams.used++ : -1;
}

/* The place of a stream by its number; `device`: the one whose memory it uses, below 0 for its own. */
static bool stream_find(uint64_t key, int device, struct sg_tracked_stream *ret)
{
    sg_process_lock(SG_LOCK_STREAMS);
    int i = stream_entry_locked(key, device);
    if (i >= 0)
        *ret = (struct sg_tracked_stream){streams.list[i].device, streams.list[i].slot, i};
    sg_process_unlock(SG_LOCK_STREAMS);
    return i >= 0;
}

/* Flags of a stream that has no slot yet, by the driver. */
static unsigned stream_flags_of(const struct sg_driver *driver, CUstream stream)
{
    unsigned flags = 0;
    if (stream == CU_STREAM_LEGACY)
        return SG_STREAM_LEGACY;
    if (stream == CU_STREAM_PER_THREAD)
        return SG_STREAM_BLOCKING | SG_STREAM_UNTRACKED_ORDER;
    if (!driver->stream_get_flags || driver->stream_get_flags(stream, &flags) != CUDA_SUCCESS)
        return SG_STREAM_BLOCKING | SG_STREAM_UNTRACKED_ORDER;
    return flags & CU_STREAM_NON_BLOCKING ? 0 : SG_STREAM_BLOCKING;
}

/* Enters a stream, unless another thread has done so since. Its slot in the core is the same either way, because the
   core knows streams by number too. */
static bool stream_enlist(const struct entry *entry, struct sg_tracked_stream *ret)
{
    sg_process_lock(SG_LOCK_STREAMS);
    int i = stream_entry_locked(entry->key, entry->foreign ? entry->device : -1);
    if (i < 0) {
        i = stream_free_entry_locked();
        if (i >= 0) {
            streams.list[i] = *entry;
            atomic_fetch_add(&streams.changes, 1); /* other threads may remember that it had no slot */
        }
    }
    sg_process_unlock(SG_LOCK_STREAMS);
    *ret = (struct sg_tracked_stream){entry->device, entry->slot, i};
    return i >= 0;
}

/* `elsewhere`: the device whose memory the stream uses, where that is another one; -1: its own. */
static bool stream_make(struct sg_core *core, CUstream stream, CUcontext context, uint64_t key, int elsewhere,
    struct sg_tracked_stream *ret)
{
    int device;
    if (!sg_contexts_device(context, &device)) {
        stream_miss();
        return false;
    }
    if (!device_is_served(elsewhere >= 0 ? elsewhere : device))
        return false;
    bool unseen = elsewhere >= 0 || atomic_load_explicit(&streams.waited_early, memory_order_relaxed);
    unsigned flags = stream_flags_of(sg_process_driver(), stream) | (unseen ? SG_STREAM_UNTRACKED_ORDER : 0);
    if (flags == SG_STREAM_LEGACY && !sg_follow_late() && sg_streams_complete() && !sg_streams_untracked())
        flags |= SG_STREAM_UNUSED; /* its first work would have made a place for it */
    /* A green context may be current to one thread only: its streams' work is asked about over the primary one. */
    CUcontext primary = sg_contexts_green(context) ? sg_contexts_primary_of(device) : NULL;
    flags |= (primary ? SG_STREAM_UNFENCEABLE : 0) | (elsewhere >= 0 ? SG_STREAM_FOREIGN : 0);
    device = elsewhere >= 0 ? elsewhere : device;
    const struct sg_stream_id id = {
        .key = key,
        .context = primary ? primary : context,
        .handle = stream,
        .per_thread = stream == CU_STREAM_PER_THREAD,
        .flags = flags,
    };
    const struct entry entry = {
        .live = true,
        .untracked_order = flags & SG_STREAM_UNTRACKED_ORDER,
        .foreign = elsewhere >= 0,
        .device = device,
        .slot = sg_core_slot(core, device, &id),
        .key = key,
        .context = context,
        .handle = stream,
    };
    if (entry.untracked_order)
        atomic_store_explicit(&streams.any_untracked_order, true, memory_order_relaxed);
    if (entry.slot && stream_enlist(&entry, ret)) {
        if (elsewhere >= 0)
            atomic_store(&streams.any_foreign, true);
        return true;
    }
    stream_miss();
    return false;
}

/* A handle without a context of its own means the current one's. */
static CUcontext stream_context_of(const struct sg_driver *driver, CUstream stream)
{
    CUcontext context = NULL;
    if (!stream_is_default(stream))
        return driver->stream_get_ctx && driver->stream_get_ctx(stream, &context) == CUDA_SUCCESS ? context : NULL;
    context = sg_contexts_only();
    if (!context && driver->ctx_get_current(&context) != CUDA_SUCCESS)
        context = NULL;
    return context;
}

static struct sg_stream_entry *stream_seen_as(struct sg_thread *self, CUstream named)
{
    uint64_t number = (uintptr_t)named; /* an address or a small number */
    return &self->streams[sg_hash(number) >> (64 - SG_STREAM_CACHE_BITS)];
}

/* The cache's place for the handle is compared in full: handle, context, device and `changes`. */
bool sg_streams_remembered(struct sg_thread *self, CUstream stream, CUcontext context, int device, sg_slot *ret)
{
    CUstream named = sg_stream_named(stream, false);
    const struct sg_stream_entry *seen = stream_seen_as(self, named);
    bool holds = seen->stream == named && seen->context == (stream_is_default(named) ? context : NULL) &&
                 (seen->device == device || !seen->slot) &&
                 seen->changes == atomic_load_explicit(&streams.changes, memory_order_acquire);
    if (holds)
        *ret = seen->slot;
    return holds;
}

/* The place of a stream: from the thread's cache, from the list by its number, or, with `create`, made anew. A failure
   is kept in the cache too, so that a stream without a slot does not ask the driver at each call. */
static bool stream_look_up(struct sg_core *core, CUstream named, bool create, struct sg_tracked_stream *ret)
{
    struct sg_thread *self = &sg_self;
    const struct sg_driver *driver = sg_process_driver();
    unsigned changes = atomic_load_explicit(&streams.changes, memory_order_acquire);
    CUcontext context = stream_is_default(named) ? stream_context_of(driver, named) : NULL;
    struct sg_stream_entry *seen = stream_seen_as(self, named);
    if (seen->stream == named && seen->context == context && seen->changes == changes) {
        *ret = (struct sg_tracked_stream){seen->device, seen->slot, seen->entry};
        return seen->slot != 0;
    }
    unsigned long long key;
    if (!driver->stream_get_id || driver->stream_get_id(named, &key) != CUDA_SUCCESS) {
        if (create)
            stream_miss();
        return false;
    }
    if (!stream_find(key, -1, ret)) {
        CUcontext home = create ? context ? context : stream_context_of(driver, named) : NULL;
        bool made = home && stream_make(core, named, home, key, -1, ret);
        if (home && !made)
            *seen = (struct sg_stream_entry){.stream = named, .context = context, .changes = changes};
        if (!made)
            return false;
    }
    *seen =
        (struct sg_stream_entry){named, context, changes, (int16_t)ret->entry, (int8_t)ret->device, (uint8_t)ret->slot};
    return true;
}

bool sg_streams_track(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret)
{
    return stream_look_up(core, sg_stream_named(stream, per_thread), true, ret);
}

bool sg_streams_find(struct sg_core *core, CUstream stream, bool per_thread, struct sg_tracked_stream *ret)
{
    return stream_look_up(core, sg_stream_named(stream, per_thread), false, ret);
}

/* The stream's own place if the block is its device's, else a place among the foreign ones there. */
bool sg_streams_track_on(struct sg_core *core, CUstream stream, int device, struct sg_tracked_stream *ret)
{
    const struct sg_driver *driver = sg_process_driver();
    CUstream named = sg_stream_named(stream, false);
    unsigned long long key;
    if (!sg_streams_track(core, named, false, ret))
        return false;
    if (ret->device == device)
        return true;
    if (!driver->stream_get_id || driver->stream_get_id(named, &key) != CUDA_SUCCESS)
        return false;
    CUcontext home = stream_context_of(driver, named);
    return stream_find(key, device, ret) || (home && stream_make(core, named, home, key, device, ret));
}

CUcontext sg_streams_context_of(CUstream stream)
{
    return stream_context_of(sg_process_driver(), sg_stream_named(stream, false));
}

bool sg_streams_device(CUstream stream, int *ret_device)
{
    CUcontext context = sg_streams_context_of(stream);
    return context && sg_contexts_device(context, ret_device);
}

/* The stream was given work. In a capture that may be a node of a graph, which the stream itself is not given. Nobody has to come
   after that, so it leaves the stream idle. */
static void stream_was_given(struct sg_core *core, int device, sg_slot slot)
{
    if (sg_captures_active())
        sg_core_slot_upkeep(core, device, slot);
    else
        sg_core_slot_submitted(core, device, slot);
}

/* The slots that the stream has on other devices. */
static void stream_touch_foreign(struct sg_core *core, int own)
{
    struct sg_tracked_stream places[SG_DEVICES_MAX];
    int count = 0;
    if (!atomic_load_explicit(&streams.any_foreign, memory_order_relaxed))
        return;
    sg_process_lock(SG_LOCK_STREAMS);
    uint64_t key = streams.list[own].key;
    for (int i = 0; i < streams.used && count < SG_DEVICES_MAX; i++) {
        const struct entry *entry = &streams.list[i];
        if (entry->live && entry->foreign && entry->key == key)
            places[count++] = (struct sg_tracked_stream){entry->device, entry->slot, i};
    }
    sg_process_unlock(SG_LOCK_STREAMS);
    for (int i = 0; i < count; i++)
        stream_was_given(core, places[i].device, places[i].slot);
}

/* The short way is a compare of the cache and one call of the core. Other places of the stream, on devices whose memory
   it uses, are touched too. */
void sg_streams_submitted(CUstream stream, bool per_thread)
{
    struct sg_thread *self = &sg_self;
    CUstream named = sg_stream_named(stream, per_thread);
    const struct sg_stream_entry *seen = stream_seen_as(self, named);
    struct sg_tracked_stream tracked;
    struct sg_core *core = sg_process_core();
    if (!core || self->inside)
        return;
    CUcontext context = stream_is_default(named) ? sg_contexts_only() : NULL;
    if (seen->stream == named && seen->context == context &&
        seen->changes == atomic_load_explicit(&streams.changes, memory_order_acquire) &&
        !atomic_load_explicit(&streams.any_foreign, memory_order_relaxed)) {
        if (seen->slot)
            stream_was_given(core, seen->device, seen->slot);
        return;
    }
    self->inside = true;
    if (sg_streams_track(core, named, false, &tracked)) {
        stream_was_given(core, tracked.device, tracked.slot);
        stream_touch_foreign(core, tracked.entry);
    }
    self->inside = false;
}

void sg_streams_host_observed_all(struct sg_core *core)
{
    uint64_t served = atomic_load_explicit(&streams.served, memory_order_relaxed);
    for (; served; served &= served - 1)
        sg_core_host_observed(core, __builtin_ctzll(served), NULL);
}

void sg_streams_shown_all(struct sg_core *core)
{
    bool watched = atomic_load_explicit(&streams.watch_shown, memory_order_relaxed);
    uint64_t served = watched ? atomic_load_explicit(&streams.served, memory_order_relaxed) : 0;
    for (; served; served &= served - 1)
        sg_core_shown(core, __builtin_ctzll(served), 0);
}

void sg_streams_watch_shown(void)
{
    atomic_store(&streams.watch_shown, true);
}

void sg_streams_graphs_show(void)
{
    atomic_store(&streams.graphs_show, true);
}

bool sg_streams_shown_matters(void)
{
    return sg_following() && (atomic_load_explicit(&streams.watch_shown, memory_order_relaxed) || sg_memory_guesses());
}

/* Work that is captured shows nothing yet, but its graph will. */
static struct sg_core *stream_enter_to_observe(void)
{
    bool matters = sg_streams_shown_matters();
    if (matters && sg_captures_active())
        sg_streams_graphs_show();
    return matters ? sg_enter() : NULL;
}

/* For a caller outside; nothing where each user of a block is recorded. */
void sg_streams_host_may_observe_all(void)
{
    bool guesses = sg_memory_guesses();
    struct sg_core *core = stream_enter_to_observe();
    if (!core)
        return;
    if (guesses)
        sg_streams_host_observed_all(core);
    else
        sg_streams_shown_all(core);
    sg_leave();
}

/* A stream that is not followed has its order noted when it is made to wait. A legacy one comes after blocking streams too. */
void sg_streams_host_may_observe(CUstream stream, bool per_thread)
{
    struct sg_tracked_stream tracked;
    struct sg_vector_clock clock;
    bool guesses = sg_memory_guesses();
    struct sg_core *core = stream_enter_to_observe();
    if (!core)
        return;
    if (!sg_streams_track(core, stream, per_thread, &tracked)) {
        sg_streams_shown_all(core);
    } else if (!guesses) {
        sg_core_shown(core, tracked.device, tracked.slot);
    } else {
        sg_core_clock(core, tracked.device, tracked.slot, &clock);
        sg_core_host_observed(core, tracked.device, &clock);
        if (sg_streams_is_untracked_order(&tracked))
            sg_streams_host_observed_all(core);
    }
    sg_leave();
}

void sg_streams_graph_launched(CUstream stream, bool per_thread)
{
    if (sg_memory_guesses() || atomic_load_explicit(&streams.graphs_show, memory_order_relaxed))
        sg_streams_host_may_observe(stream, per_thread);
}

/* The core is called each time. Another thread may have noted it here without having reached the core yet. Or it was
   noted of the stream that had the entry before. */
void sg_streams_untracked_order(struct sg_core *core, const struct sg_tracked_stream *tracked)
{
    atomic_store_explicit(&streams.any_untracked_order, true, memory_order_relaxed);
    sg_process_lock(SG_LOCK_STREAMS);
    streams.list[tracked->entry].untracked_order = true;
    sg_process_unlock(SG_LOCK_STREAMS);
    sg_core_slot_untracked_order(core, tracked->device, tracked->slot);
}

bool sg_streams_is_untracked_order(const struct sg_tracked_stream *tracked)
{
    sg_process_lock(SG_LOCK_STREAMS);
    bool untracked_order = streams.list[tracked->entry].untracked_order;
    sg_process_unlock(SG_LOCK_STREAMS);
    return untracked_order;
}

bool sg_streams_any_untracked_order(void)
{
    return atomic_load_explicit(&streams.any_untracked_order, memory_order_relaxed);
}

CUcontext sg_streams_context(const struct sg_tracked_stream *tracked)
{
    sg_process_lock(SG_LOCK_STREAMS);
    CUcontext context = streams.list[tracked->entry].context;
    sg_process_unlock(SG_LOCK_STREAMS);
    return context;
}

/* The primary context stands for the green ones on its device too; here for all, which is more than it must. */
void sg_streams_untracked_order_of(struct sg_core *core, CUcontext context)
{
    struct sg_tracked_stream places[STREAMS_MAX];
    int count = 0, device;
    if (!sg_contexts_device(context, &device))
        device = -1;
    sg_process_lock(SG_LOCK_STREAMS);
    for (int i = 0; i < streams.used; i++) {
        const struct entry *entry = &streams.list[i];
        if (entry->live && (entry->context == context || entry->device == device))
            places[count++] = (struct sg_tracked_stream){entry->device, entry->slot, i};
    }
    sg_process_unlock(SG_LOCK_STREAMS);
    for (int i = 0; i < count; i++)
        sg_streams_untracked_order(core, &places[i]);
}

void sg_streams_waited_early(void)
{
    atomic_store(&streams.waited_early, true);
}

void sg_streams_context_waited(void)
{
    atomic_store(&streams.context_waited, true);
}

bool sg_streams_idle_completes(void)
{
    return !atomic_load(&streams.context_waited);
}

/* Entries are free again. Their slots in the core go with the context. */
void sg_streams_context_gone(CUcontext context)
{
    sg_process_lock(SG_LOCK_STREAMS);
    for (int i = 0; i < streams.used; i++) {
        if (streams.list[i].context == context)
            streams.list[i].live = false;
    }
    atomic_fetch_add(&streams.changes, 1);
    sg_process_unlock(SG_LOCK_STREAMS);
}

/* A counter for each thread's cache is enough: all look their streams up anew. */
void sg_streams_new_handle(CUstream stream)
{
    sg_process_lock(SG_LOCK_STREAMS);
    for (int i = 0; i < streams.used; i++) {
        if (streams.list[i].live && streams.list[i].handle == stream)
            atomic_fetch_add(&streams.changes, 1);
    }
    sg_process_unlock(SG_LOCK_STREAMS);
}

/* The slots outlive the stream until the work that it was given is complete. */
void sg_streams_retire(CUstream stream)
{
    struct sg_tracked_stream places[SG_DEVICES_MAX];
    int count = 0;
    const struct sg_driver *driver = sg_process_driver();
    struct sg_core *core = sg_following() && stream && !stream_is_default(stream) ? sg_enter() : NULL;
    unsigned long long key;
    if (!core)
        return;
    if (driver->stream_get_id && driver->stream_get_id(stream, &key) == CUDA_SUCCESS) {
        sg_process_lock(SG_LOCK_STREAMS);
        for (int i = 0; i < streams.used && count < SG_DEVICES_MAX; i++) {
            if (!streams.list[i].live || streams.list[i].key != key)
                continue;
            places[count++] = (struct sg_tracked_stream){streams.list[i].device, streams.list[i].slot, i};
            streams.list[i].live = false;
        }
        atomic_fetch_add(&streams.changes, 1);
        sg_process_unlock(SG_LOCK_STREAMS);
        for (int i = 0; i < count; i++)
            sg_core_slot_gone(core, places[i].device, places[i].slot);
    }
    sg_leave();
}
