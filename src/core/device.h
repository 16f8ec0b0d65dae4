/* One device: its regions, its counters and its lock. Internal to the core.

   Locks, in order: `grow` (one thread at a time creates, maps or takes pages away; held across driver calls), the
   core's `setup`, then `lock` (everything below; never held across a driver call). `asking` comes before `lock` and is
   not taken while `grow` is held. */
#ifndef SG_DEVICE_H
#define SG_DEVICE_H

#include <assert.h>

#include "core.h"
#include "context_list.h"
#include "cost.h"
#include "lock.h"
#include "lock_roles.h"
#include "scratch.h"
#include "stream_clock.h"
#include "space/region.h"
#include "tuning.h"
#include "usage.h"

enum { SG_REGIONS_MAX = 64, SG_STREAMS_MAX = 256 };

enum sg_region_kind { SG_KIND_SMALL, SG_KIND_REGULAR, SG_KIND_HUGE, SG_KIND_COUNT };

enum sg_device_mode {
    SG_MODE_NEW, /* never used */
    SG_MODE_EXPANDABLE,
    SG_MODE_SEGMENTS,   /* fixed segments: fixed_segments.h */
    SG_MODE_PASSTHROUGH /* we cannot serve it: the driver does */
};

/* Who reads peaks: those of one reader begin again without a change of the others'. */
enum sg_peaks {
    SG_PEAKS_OF_ALL, /* since the start: decisions, reports, files */
    SG_PEAKS_RESET,  /* since sg_core_reset_peaks() */
    SG_PEAKS_TAKEN,  /* since sg_core_take_peaks() */
    SG_PEAKS_COUNT
};

/* A fence, an event of the core's own: once it has passed, all that `slots` were given before `seq` is complete. */
struct sg_fence {
    CUevent event;
    CUcontext context; /* of the event */
    uint64_t slots;    /* bits, of those that are followed */
    uint64_t seq;
    uint64_t number;   /* in the order of recording */
};

/* All work that there was up to `seq`, in whichever stream and context: complete once no fence up to `last` is out. */
struct sg_epoch {
    uint64_t seq, last;
};

struct sg_idle_event {
    CUevent event;
    CUcontext context;
};

enum { SG_FENCES = 1024, SG_IDLE_EVENTS = 64, SG_EPOCHS = 64 };

struct sg_pending_queue {
    uint32_t first, last; /* extents, oldest first, linked by `later` */
};

/* What stands where among a device's addresses. */
struct sg_regions {
    struct sg_region *region[SG_REGIONS_MAX]; /* never moved or freed while others can look addresses up */
    uint8_t kind[SG_REGIONS_MAX];             /* enum sg_region_kind, of each */
    uint32_t count;
    struct sg_extents extents;
    uint64_t page_bytes[SG_KIND_COUNT]; /* of new regions; set when the device is first used, changed with `grow` too */
};

/* Streams by their index in the trace, which begins at 1. */
struct sg_trace_streams {
    CUstream stream[SG_STREAMS_MAX];
    uint32_t context[SG_STREAMS_MAX]; /* of fixed segments: whose pool it is served from (sg_segments_pool_locked) */
    uint32_t count;
};

/* What shows that work is complete: events that are out, and those that are not in use. */
struct sg_fences {
    struct sg_lock asking; /* held by the one thread that asks the driver about pending frees, or waits for one */
    uint32_t count, idle_count, epoch_count;
    uint64_t number;      /* of the last fence */
    uint64_t completions; /* times that something became complete */
    uint32_t epoch_frees; /* and bytes, that take effect later, since events for them were last asked for */
    uint64_t epoch_bytes;
    struct sg_fence fence[SG_FENCES]; /* outstanding, oldest first. A writer holds `asking` too; the end of a context
                                         does not */
    struct sg_idle_event idle_event[SG_IDLE_EVENTS];
    struct sg_epoch epoch[SG_EPOCHS]; /* oldest first */
};

/* Frees that take effect later. */
struct sg_pending {
    struct sg_pending_queue awaits_all;     /* free after all work that there was, of all contexts (struct sg_epoch) */
    struct sg_pending_queue awaits_streams; /* free after work of several streams */
    uint64_t awaits_streams_version;        /* clocks.version when `awaits_streams` was last looked through */
};

/* Pages at two addresses (page_alias.h). */
struct sg_aliases {
    struct sg_pending_queue stale_queue; /* addresses that are to be unmapped later: busy extents */
    _Atomic uint64_t slots; /* a bit for each slot whose stream got a page at a second address since the last
                               sg_core_take_aliased(). No lock */
};

/* What is left of the device, by what others hold and by what the driver has refused. */
struct sg_room {
    uint64_t outside_bytes;      /* of the device in use by others, quantised */
    struct sg_outside outside;   /* to the byte, as the observer has it; nothing is decided by it */
    uint64_t refused_at;         /* reserved bytes at which the driver last refused a page; 0: it has not */
    bool mappings_out;           /* the machine seems to have no mappings left */
    uint32_t refusals;           /* allocations that the driver served whole, for its memory management failed twice */
    struct sg_shortage shortage; /* of the most recent failure; asks for nothing before one */
};

/* Which devices reach the memory of this one. */
struct sg_access {
    uint64_t peers;     /* bit per device that must have access */
    bool peer_accessed; /* another device has had access: what is mapped keeps it */
};

/* What every operation keeps. */
struct sg_accounts {
    struct sg_usage usage;
    uint64_t counter[SG_STAT_COUNT]; /* COUNTER statistics; updated atomically where not under `lock` */
    uint64_t peak_before[SG_PEAKS_COUNT][SG_STAT_COUNT]; /* of levels, until the gauges' peaks last began again */
    struct sg_cost cost[SG_COST_CALLS];                  /* of a replay they change under `lock` */
};

/* Growing: one thread at a time. */
struct sg_growth {
    struct sg_lock grow;
    bool second_try;                 /* what is under way has failed before */
    struct sg_scratch handles, runs; /* of the plan (plan.h) */
};

struct sg_device {
    struct sg_lock lock;
    struct sg_core *core;
    int ordinal;
    enum sg_device_mode _Atomic mode; /* changes under `lock` */
    /* Set when the device is first used. */
    uint64_t granularity, total_bytes; /* granularity: 0 where there were never regions */
    uint64_t capacity_bytes;           /* what may be held; changes under `lock` */
    struct sg_pages pages;
    struct sg_segments *_Atomic fixed; /* of SG_MODE_SEGMENTS; set once, under `lock` */
    struct sg_regions regions SG_GUARDED_BY(lock);
    struct sg_accounts accounts SG_GUARDED_BY(lock);
    struct sg_pending pending SG_GUARDED_BY(lock);
    struct sg_aliases aliases;
    struct sg_room room SG_GUARDED_BY(lock);
    struct sg_access access SG_GUARDED_BY(lock);
    struct sg_trace_streams streams SG_GUARDED_BY(lock);
    struct sg_stream_clocks clocks SG_GUARDED_BY(lock);
    /* Kept away from what the hot path touches. */
    _Alignas(64) struct sg_fences fences SG_GUARDED_BY(lock);
    _Alignas(64) struct sg_growth growth SG_GUARDED_BY(grow);
};

struct sg_core {
    struct sg_conf conf;
    const struct sg_driver *driver;
    struct sg_event_sink observer;
    struct sg_core_callbacks callbacks;
    bool plain_pages;
    _Atomic uint64_t aliases; /* bit per device whose pages may get a second address */
    const struct sg_replay *replay;
    _Atomic bool disabled;
    _Atomic bool shares; /* by sg_core_share() */
    struct sg_lock setup; /* guards the making of devices and the lists of contexts and ranges */
    struct sg_context_list contexts; /* changed under `setup` */
    struct sg_device *_Atomic device[SG_DEVICES_MAX];
    /* Ranges of addresses that are ours, for sg_core_owns(): only ever appended. */
    struct sg_range {
        CUdeviceptr begin, end;
        struct sg_device *device;
        struct sg_region *region;
        bool huge; /* its region is remade for each block */
    } range[SG_REGIONS_MAX * 16];
    _Atomic uint32_t range_count;
};

/* The driver, for a call: none is made under a device's `lock`, since it may wait. */
static inline const struct sg_driver *sg_core_driver(const struct sg_core *core)
{
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
    return core->driver;
}

/* The range of ours that holds `address`, NULL if none does. No lock needed. */
static inline const struct sg_range *sg_core_range_at(const struct sg_core *core, CUdeviceptr address)
{
    uint32_t count = atomic_load_explicit(&((struct sg_core *)core)->range_count, memory_order_acquire);
    for (const struct sg_range *range = core->range, *end = range + count; range != end; range++)
        if (address >= range->begin && address < range->end)
            return range;
    return NULL;
}

/* The device, if it has been made ready; NULL otherwise. No lock needed. */
static inline struct sg_device *sg_device_known(struct sg_core *core, int ordinal)
{
    return (unsigned)ordinal < SG_DEVICES_MAX ? atomic_load_explicit(&core->device[ordinal], memory_order_acquire)
                                              : NULL;
}

/* The device with fixed segments one of whose segments holds `address`; NULL if none does. No lock needed. */
struct sg_device *sg_core_segments_at(const struct sg_core *core, CUdeviceptr address);

/* The capacity in bytes, read without `lock`. It may change before the reader takes `lock`. */
static inline uint64_t sg_device_capacity(const struct sg_device *device)
{
    return __atomic_load_n(&device->capacity_bytes, __ATOMIC_RELAXED);
}

/* Makes the locks of a device that has its number. Nobody holds them. */
SG_UNCHECKED_LOCKS static inline void sg_device_init_locks(struct sg_device *device)
{
    sg_lock_init(&device->fences.asking, SG_RANK_ASKING, (unsigned)device->ordinal);
    sg_lock_init(&device->growth.grow, SG_RANK_GROW, (unsigned)device->ordinal);
    sg_lock_init(&device->lock, SG_RANK_DEVICE, (unsigned)device->ordinal);
}

/* `lock`, for a moment: no driver call is made with it. */
SG_UNCHECKED_LOCKS static inline void sg_device_lock(struct sg_device *device) SG_ACQUIRES(lock)
{
    sg_lock(&device->lock);
}
SG_UNCHECKED_LOCKS static inline void sg_device_unlock(struct sg_device *device) SG_RELEASES(lock)
{
    sg_unlock(&device->lock);
}

/* `grow`: whose holder alone creates, maps and takes pages. sg_replay_grow_lock() waits for its turn in a replay too. */
SG_UNCHECKED_LOCKS static inline void sg_grow_lock(struct sg_device *device) SG_ACQUIRES(grow)
{
    sg_lock(&device->growth.grow);
}
SG_UNCHECKED_LOCKS static inline bool sg_grow_try(struct sg_device *device) SG_TRY_ACQUIRES(grow)
{
    return sg_lock_try(&device->growth.grow);
}
SG_UNCHECKED_LOCKS static inline void sg_grow_unlock(struct sg_device *device) SG_RELEASES(grow)
{
    sg_unlock(&device->growth.grow);
}

/* What only the holder of `grow` changes, under `lock` besides: that holder reads it without `lock`. */
static inline const struct sg_regions *sg_device_regions_growing(const struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return &device->regions;
}
static inline const struct sg_room *sg_device_room_growing(const struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return &device->room;
}
static inline const struct sg_access *sg_device_access_growing(const struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    return &device->access;
}

/* `asking`: whose holder alone queries and waits for fences. */
SG_UNCHECKED_LOCKS static inline void sg_asking_lock(struct sg_device *device) SG_ACQUIRES(asking)
{
    sg_lock(&device->fences.asking);
}
SG_UNCHECKED_LOCKS static inline bool sg_asking_try(struct sg_device *device) SG_TRY_ACQUIRES(asking)
{
    return sg_lock_try(&device->fences.asking);
}
SG_UNCHECKED_LOCKS static inline void sg_asking_unlock(struct sg_device *device) SG_RELEASES(asking)
{
    sg_unlock(&device->fences.asking);
}

/* `setup`: whose holder alone makes a device, adds a range of addresses and changes the list of contexts. */
SG_UNCHECKED_LOCKS static inline void sg_setup_lock(struct sg_core *core) SG_ACQUIRES(setup)
{
    sg_lock(&core->setup);
}
SG_UNCHECKED_LOCKS static inline void sg_setup_unlock(struct sg_core *core) SG_RELEASES(setup)
{
    sg_unlock(&core->setup);
}

static inline void sg_count(struct sg_device *device, enum sg_stat stat, uint64_t amount)
{
    __atomic_fetch_add(&device->accounts.counter[stat], amount, __ATOMIC_RELAXED);
}

static inline void sg_emit(struct sg_device *device, uint8_t kind, uint8_t flags, uint32_t stream, uint64_t id,
    uint64_t size)
{
    sg_event_emit(&device->core->observer, kind, flags, stream, id, size);
}

/* Merges what is cached in all regions. Under `lock`, before free memory is counted, cut or placed in. Whether there
   was anything. */
bool sg_device_drain_quick_lists_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Joins free ranges that could not be before their work was complete, in all regions. Whether anything was looked at. */
bool sg_device_coalesce_completed_locked(struct sg_device *device) SG_REQUIRES(lock);

/* Asks the driver how much of the device is not ours, and notes it. Holds `grow`. */
void sg_device_ask_outside_growing(struct sg_device *device) SG_REQUIRES(grow);

/* Notes how much of the device others use. */
void sg_device_note_outside_locked(struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock);

/* Figures that follow from others, brought up to date. Under `lock`, after growing and before a snapshot. */
void sg_usage_derive_locked(struct sg_device *device) SG_REQUIRES(lock);

/* The device, made ready on first use; NULL when out of host memory or disabled. */
struct sg_device *sg_device_get(struct sg_core *core, int ordinal);

/* Adds a region of at least `bytes` for `kind`. The driver is asked for addresses; a huge block takes those of one
   that is gone, if they suffice. Ranges of addresses are kept for good, so looking an address up needs no lock.
   CUDA_ERROR_OUT_OF_MEMORY: there are as many as there may be, or the host has no memory. CUDA_ERROR_NOT_SUPPORTED:
   the driver gave no addresses. Holds `grow`. */
CUresult sg_device_add_region_growing(struct sg_device *device, enum sg_region_kind kind, uint64_t bytes)
    SG_REQUIRES(grow);

/* Whether a block of `units` may stand in a region: one for huge blocks has one page, which must fit. */
static inline bool sg_device_suits_locked(const struct sg_device *device, uint32_t index, enum sg_region_kind kind,
    uint32_t units) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_region *region = device->regions.region[index];
    return device->regions.kind[index] == kind &&
           (kind != SG_KIND_HUGE ||
               (region->units >= units && region->units - units < device->granularity >> SG_UNIT_SHIFT));
}

/* Its memory management has failed an allocation, in the section that says so in the trace. */
void sg_device_note_refusal_locked(struct sg_device *device) SG_REQUIRES(lock) SG_REQUIRES(grow);

/* Pages of a region may not move any more. Under `lock`. */
enum { SG_PIN_REGION_SHIFT = 32 }; /* of the region in the record of a pin */
void sg_device_pin_locked(struct sg_device *device, struct sg_region *region, uint32_t first, uint32_t pages)
    SG_REQUIRES(lock);

/* Which devices have access (bits). */
void sg_device_set_peers_locked(struct sg_device *device, uint64_t peers) SG_REQUIRES(lock);

/* The index under which a stream stands in the trace; defines it there first if need be. */
uint32_t sg_device_stream_locked(struct sg_device *device, const struct sg_tag *tag) SG_REQUIRES(lock);

/* The index in the trace for no known stream, and for a followed stream. */
static inline uint32_t sg_device_unknown_stream(const struct sg_device *device)
{
    return (uint32_t)device->ordinal * (SG_STREAMS_MAX + SG_SLOTS);
}
static inline uint32_t sg_device_slot_stream(const struct sg_device *device, sg_slot slot)
{
    return sg_device_unknown_stream(device) + SG_STREAMS_MAX + slot;
}

/* What order/stream_clock.h does, under `lock`. */
static inline uint64_t sg_clocks_tick_locked(struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_clocks_tick(&device->clocks);
}
static inline uint64_t sg_clocks_read_locked(struct sg_device *device, uint64_t slots) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_clocks_read(&device->clocks, slots);
}
static inline uint64_t sg_clocks_freed_locked(struct sg_device *device, sg_slot own, uint64_t others, bool missed_calls,
    bool *ret_was_used) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_clocks_freed(&device->clocks, own, others, missed_calls, /* replayed */ device->core->replay,
        ret_was_used);
}
/* Memory was freed after what these slots have been given: a fence is worth recording there. */
static inline void sg_clocks_need_fence_locked(struct sg_device *device, uint64_t slots) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    device->clocks.needs_fence |= slots & (device->clocks.alive | 1);
}

/* Whether fences can tell when all present work is complete: they stand over each context, which drivers before CUDA 12.5
   cannot do. */
bool sg_fences_can_cover_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* Whether a helper thread can wait for all work instead, where no fence tells of it. No lock needed. */
bool sg_fences_can_wait(const struct sg_device *device);

/* Asks the driver what is complete. QUERY: by the fences that are out. FENCE: also records some, if those give no
   news. WAIT: waits for the oldest where nothing else helps. Returns whether there was news, here or in another
   thread. No lock may be held. */
enum sg_ask { SG_ASK_QUERY, SG_ASK_FENCE, SG_ASK_WAIT };
bool sg_device_ask(struct sg_device *device, enum sg_ask how);

/* Waits until what was freed so far is complete: for whoever asks for memory to be given back, which natively waits
   too. */
void sg_device_drain(struct sg_device *device);

/* Appends a suspended extent, which is free after what `slots` were given before `seq`; bit 0: all streams of the
   context. Under `lock`, like all of these. */
void sg_pending_push_locked(struct sg_device *device, uint32_t extent, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);
/* What `slots` were given before `seq` is complete. */
void sg_pending_complete_locked(struct sg_device *device, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);
/* Epochs whose fences have all passed are over. */
void sg_pending_settle_epochs_locked(struct sg_device *device) SG_REQUIRES(lock);
/* A context is gone, NULL: all are: so is its work, and the events in it. */
void sg_pending_forget_locked(struct sg_device *device, CUcontext context) SG_REQUIRES(lock);
/* Frees of blocks that were used on several streams take effect, as far as is known. Such a block is its own
   stream's once that is ordered after the others. */
void sg_pending_settle_locked(struct sg_device *device) SG_REQUIRES(lock);
/* Such blocks go to `slot`, which needs memory, where it is ordered after all users. Returns whether there was any. */
bool sg_pending_inherit_locked(struct sg_device *device, sg_slot slot) SG_REQUIRES(lock);

/* The slot of a stream of the trace, which is one of the device's; 0: it is none's. */
static inline sg_slot sg_device_slot_of(const struct sg_device *device, uint32_t stream)
{
    uint32_t first = sg_device_unknown_stream(device) + SG_STREAMS_MAX;
    assert(stream < first + SG_SLOTS);
    return stream > first ? stream - first : 0;
}

/* Whether other streams than `slot` have free memory, or had. */
bool sg_device_is_shared_locked(const struct sg_device *device, sg_slot slot) SG_REQUIRES(lock);

/* Takes a block for a slot from what is free and mapped already; 0 if nothing fits. Under `lock`. `want` by
   reference: of one passed by value the compiler puts small members together in memory, and reading them back at once
   stalls. */
struct sg_want {
    enum sg_region_kind kind;
    uint32_t units;
    enum sg_region_end end;
    bool aliases; /* pages may get a second address for it */
    bool refused; /* the driver has: what was held then is a limit too */
    sg_slot slot;
};
uint32_t sg_device_take_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Takes a block as sg_device_take_locked() does, or after searches over neighbouring ranges and other streams' frees. */
uint32_t sg_device_take_thoroughly_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Takes a block that is not small from any region that has a range for it: where nothing else is left. */
uint32_t sg_device_take_anywhere_locked(struct sg_device *device, const struct sg_want *want) SG_REQUIRES(lock);

/* Releases an extent that is a block or pending, and accounts for it. The memory is free for `owner`, and for others
   after `seq`; 0, 0: for all. */
void sg_device_release_locked(struct sg_device *device, uint32_t extent, sg_slot owner, uint64_t seq) SG_REQUIRES(lock);

/* Makes a live block pending until what `slots` were given before `seq` is complete, as of sg_pending_push_locked(). Under
   the lock. */
void sg_device_suspend_locked(struct sg_device *device, uint32_t extent, uint64_t slots, uint64_t seq) SG_REQUIRES(lock);

/* A live block is used on the stream of `slot` too; slot 0: on streams that are not followed. */
void sg_device_record_stream_locked(struct sg_device *device, uint32_t extent, sg_slot slot) SG_REQUIRES(lock);

/* Releases every live block of a region that was allocated in `context` (NULL: all). */
void sg_device_release_all_locked(struct sg_device *device, struct sg_region *region, CUcontext context)
    SG_REQUIRES(lock);

/* The slow half of an allocation: pages are mapped, moved or waited for. Takes `grow`. */
CUresult sg_grow(struct sg_device *device, struct sg_want want, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret);

/* Notes and reports an allocation that cannot be had; returns CUDA_ERROR_OUT_OF_MEMORY. No lock held. */
CUresult sg_device_ran_out(struct sg_device *device, size_t bytes, const struct sg_tag *tag);

/* A block has been carved: fill it in, account for it, tell the observer. */
CUdeviceptr sg_device_hand_out_locked(struct sg_device *device, uint32_t extent, size_t bytes, const struct sg_tag *tag)
    SG_REQUIRES(lock);

/* Gives up to `bytes` of whole free pages back to the driver, from the last regions first. Holds `grow`. Returns how
   much. */
uint64_t sg_device_give_back_growing(struct sg_device *device, uint64_t bytes) SG_REQUIRES(grow);

/* A huge block was freed. Its page goes back at once: it is of no use to anybody else. Its addresses wait for the next
   one. No lock held. */
void sg_device_retire_huge(struct sg_device *device, struct sg_region *region);

/* Whether `more` bytes of new pages may be had without a thought of moving others instead. On the way of every
   allocation. */
static inline bool sg_device_is_low_pressure_locked(const struct sg_device *device, uint64_t more) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    enum { WHOLE = 100 };
    uint64_t held = device->accounts.usage.reserved.now + more;
    return device->core->conf.reserve_slack == 0 &&
           (held + device->room.outside_bytes) * WHOLE < device->total_bytes * SG_ROOMY_PERCENT &&
           held * WHOLE < device->capacity_bytes * SG_ROOMY_PERCENT;
}

/* The most bytes that have ever been allocated, whoever lets peaks begin again. */
uint64_t sg_device_allocated_peak_locked(const struct sg_device *device) SG_REQUIRES(lock);

/* How many of `more` bytes of new pages, made for a block of `block_bytes`, should be taken from elsewhere instead, and
   how many must be. `refused`: what was held when the driver refused last is as hard a limit as ours. Under the
   lock. */
struct sg_wanted {
    uint64_t should, must;
};
struct sg_wanted sg_device_moves_wanted_locked(const struct sg_device *device, uint64_t more, uint64_t block_bytes,
    bool refused) SG_REQUIRES(lock);

/* Accounts for pages that came to, or went from, a region. */
void sg_device_count_pages_locked(struct sg_device *device, struct sg_region *region, int64_t pages) SG_REQUIRES(lock);

/* Whole, unpinned free pages, in bytes. */
uint64_t sg_device_idle_locked(const struct sg_device *device) SG_REQUIRES(lock);

#endif
