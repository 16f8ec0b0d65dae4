/* A device and the core: the structs, by owner. No function here does more than read a field.

   Nouns. A *device* is one GPU, by its ordinal. The *core* has all devices of a process. A *kind* of region is for
   small, regular or huge blocks. A *fence* is a CUDA event of the core's own. An *epoch* is a group of frees that
   share fences. A *gauge* is a level with its peak.

   Why parts: a device has eight owners, and each part changes by one file's rules. These are regions.h, accounts.h,
   trace_streams.h, mappings.h, outside_bytes.h and access.h here. Elsewhere they are fences.h and pending_frees.h of
   streams/, page_alias.h of remap/, and grow.h. The lock that guards a part stands once, in struct sg_device.

   How the hot path goes: `lock`, `regions` and `accounts` stand in front. Fences and growth, which other threads
   write while they call the driver, begin on cache lines of their own.

   For example, a device of 24 GiB that serves two blocks of 1,000 bytes has one small region (`regions.count` 1) of 3
   GiB of addresses. `accounts.usage` has one page of 2 MiB in `reserved`, 2,048 bytes in `allocated` and 2,000 in
   `requested`. Nothing is in `pending`, and clocks.seq is 2: an allocation each. */
#ifndef SG_CORE_STATE_DEVICE_H
#define SG_CORE_STATE_DEVICE_H

#include <assert.h>
#include <limits.h>

#include "driver/context_list.h"
#include "core/core_types.h"
#include "driver/cost.h"
#include "base/lock.h"
#include "core/lock_roles.h"
#include "driver/pages.h"
#include "base/scratch.h"
#include "core/space/region.h"
#include "order/stream_clock.h"
#include "base/usage.h"

enum { SG_REGIONS_MAX = 64, SG_STREAMS_MAX = 256 };

/* Blocks are kept apart by size. Small ones share pages, and regular ones are placed so that pages stay whole.
   A huge one, above half of the capacity, has a region of one page to itself. Those for which the device had
   too little memory share the region for overflow, where some pages are far ones (remap/overflow.h). */
enum sg_region_kind { SG_KIND_SMALL, SG_KIND_REGULAR, SG_KIND_HUGE, SG_KIND_OVERFLOW, SG_KIND_COUNT };

/* True if a region of the kind has one page, which is one block's. */
static inline bool sg_kind_has_one_page(enum sg_region_kind kind)
{
    return kind == SG_KIND_HUGE;
}

/* True if blocks of another kind may stand in a region of the kind: its pages are the device's, and shared. */
static inline bool sg_kind_serves_anybody(enum sg_region_kind kind)
{
    return kind == SG_KIND_SMALL || kind == SG_KIND_REGULAR;
}

/* The *purpose* of a region: the kind of its blocks and their tag of memory (state/tags.h), in one number. So a look at a
   region is one comparison, with tags or without. */
enum { SG_PURPOSE_TAG_SHIFT = CHAR_BIT };

static inline uint32_t sg_purpose(enum sg_region_kind kind, uint32_t tag)
{
    return (uint32_t)kind | tag << SG_PURPOSE_TAG_SHIFT;
}

static inline enum sg_region_kind sg_purpose_kind(uint32_t purpose)
{
    return (enum sg_region_kind)(purpose & ((1 << SG_PURPOSE_TAG_SHIFT) - 1));
}

static inline uint32_t sg_purpose_tag(uint32_t purpose)
{
    return purpose >> SG_PURPOSE_TAG_SHIFT;
}

/* How a device serves. It begins as one of the last three (start.h), and may go from regions to segments later, never
   back. */
enum sg_device_mode {
    SG_MODE_NEW, /* never used */
    SG_MODE_EXPANDABLE,
    SG_MODE_SEGMENTS,   /* fixed segments: fixed_segments.h */
    SG_MODE_PASSTHROUGH /* we cannot serve it: the driver does */
};

/* The readers of peaks. The peaks of one begin again without a change for the others. */
enum sg_peaks {
    SG_PEAKS_OF_ALL,   /* since the start: decisions, reports, files */
    SG_PEAKS_RESET,    /* since sg_core_reset_peaks() */
    SG_PEAKS_TAKEN,    /* since sg_core_take_peaks() */
    SG_PEAKS_INTERVAL, /* since sg_core_interval_peaks() */
    SG_PEAKS_COUNT
};

/* A fence, an event of the core's own: once it has passed, all that `slots` were given before `seq` is complete. */
struct sg_fence {
    CUevent event;
    CUcontext context; /* of the event */
    uint64_t slots;    /* bits, of those that are followed */
    uint64_t seq;
    uint64_t number; /* in the order of recording */
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

/* The addresses of a device. */
struct sg_regions {
    struct sg_region *region[SG_REGIONS_MAX]; /* never moved or freed while others can look addresses up */
    uint16_t purpose[SG_REGIONS_MAX];         /* of each: no other blocks stand there */
    uint32_t count;
    uint64_t below; /* blocks of fewer bytes stand in regions, others in fixed segments; 0: none do, UINT64_MAX: all */
    struct sg_extents extents;
    /* Page size of new regions, by kind. Set when the device is first used; a change takes `grow` besides `lock`. */
    uint64_t page_bytes[SG_KIND_COUNT];
};

/* Streams by their index in the trace, which begins at 1. */
struct sg_trace_streams {
    CUstream stream[SG_STREAMS_MAX];
    uint32_t context[SG_STREAMS_MAX]; /* of fixed segments: whose pool it is served from (sg_segments_pool_locked) */
    uint32_t count;
};

/* The events that show when work is complete: those that are recorded and not passed yet, and those that are not in
   use. */
struct sg_fences {
    struct sg_lock asking; /* held by the one thread that asks the driver about pending frees, or waits for one */
    uint32_t count, idle_count, epoch_count;
    uint64_t number;      /* of the last fence */
    uint64_t completions; /* times that something became complete */
    uint32_t epoch_frees; /* and bytes, that take effect later, since events for them were last asked for */
    uint64_t epoch_bytes;
    uint64_t aside; /* what was freed up to this number, the last wait of a helper thread for all work is for */
    /* Recorded and not passed yet, oldest first. A writer holds `asking` besides; only the end of a context does
       not. */
    struct sg_fence fence[SG_FENCES];
    struct sg_idle_event idle_event[SG_IDLE_EVENTS];
    struct sg_epoch epoch[SG_EPOCHS]; /* oldest first */
};

/* Frees that take effect later. */
struct sg_pending {
    struct sg_pending_queue awaits_all;     /* free after all work that there was, of all contexts (struct sg_epoch) */
    struct sg_pending_queue awaits_streams; /* free after work of several streams */
    uint64_t awaits_streams_version;        /* clocks.version when `awaits_streams` was last looked through */
};

/* Addresses that moved pages keep for a while (remap/page_alias.h). */
struct sg_aliases {
    struct sg_pending_queue stale_queue; /* aliases that are to be unmapped, oldest first: busy extents */
    /* A bit for each slot whose stream was given memory of an alias since the last sg_core_take_aliased(). No lock. */
    _Atomic uint64_t slots;
};

/* The rest of the device: how much others hold, and what the driver has refused. */
struct sg_room {
    uint64_t outside_bytes;      /* of the device in use by others, quantised */
    uint64_t outside_exact;      /* to the byte, when the driver was asked last; for what is said, not for plans */
    struct sg_outside outside;   /* to the byte, as the observer has it; nothing is decided by it */
    uint64_t refused_at;         /* reserved bytes at which the driver last refused a page; 0: it has not */
    struct sg_overflow_lacks overflow_lacks; /* of the last block for which overflow was asked */
    uint64_t far_allocs;         /* the statistic allocs at the last block that was served in the region for overflow */
    bool mappings_out;           /* the machine seems to have no mappings left */
    uint32_t refusals;           /* allocations that the driver served whole, for its memory management failed twice */
    struct sg_shortage shortage; /* of the most recent failure; asks for nothing before one */
};

/* The devices that reach the memory of this one. */
struct sg_access {
    uint64_t peers;     /* bit per device that must have access */
    bool peer_accessed; /* another device has had access: what is mapped keeps it */
};

/* The tags of memory, on one device. A tag that was never used there is all zeros. */
struct sg_device_tags {
    uint32_t paused; /* a bit for each tag whose regions are paused (pause.h) */
    struct sg_tag_use {
        struct sg_gauge requested; /* bytes of its live blocks as they were asked for, paused or not */
        struct sg_gauge reserved;  /* bytes of its pages */
        struct sg_gauge saved;     /* bytes of its blocks whose contents are elsewhere */
        uint64_t pauses, resumes;
    } of[SG_TAGS];
};

/* The figures that every operation keeps. */
struct sg_accounts {
    struct sg_usage usage;
    uint64_t counter[SG_STAT_COUNT]; /* COUNTER statistics; updated atomically where not under `lock` */
    uint64_t peak_before[SG_PEAKS_COUNT][SG_STAT_COUNT]; /* of levels, until the gauges' peaks last began again */
    struct sg_cost cost[SG_COST_CALLS];                  /* of a replay they change under `lock` */
};

/* Growing: one thread at a time. */
struct sg_growth {
    struct sg_lock grow;
    uint64_t host_granularity; /* bytes, of pages in the host's memory; 0: there are none, or nobody has asked */
    bool host_asked;           /* the driver was asked for that */
    struct sg_overflow_neighbour {
        int device;              /* the one whose memory far pages of SG_PLACE_PEER are; -1: there was none yet */
        uint64_t granularity;    /* bytes, of pages there */
        uint64_t tried, refused; /* bits by ordinal: those of which a page was mapped, and of which none could be */
        bool said;               /* that there is none */
    } neighbour;
    struct sg_far_bound {
        uint64_t most;               /* bytes that may be created there for the block under way */
        enum sg_overflow_lack lack;  /* what they are bounded by */
    } far[SG_PLACES];                /* by place */
    bool second_try;                 /* what is under way has failed before */
    struct sg_scratch handles, runs; /* of the plan (plan.h), or of a pause */
    struct sg_scratch pieces;        /* of a pause: the blocks whose contents are saved */
};

struct sg_device {
    struct sg_lock lock;
    struct sg_core *core;
    int ordinal;
    enum sg_device_mode _Atomic mode; /* changes under `lock` */
    /* Set when the device is first used, bytes. */
    uint64_t granularity, total_bytes; /* granularity: 0 where there were never regions */
    uint64_t capacity_bytes;           /* what may be held; changes under `lock` */
    struct sg_pages pages;
    struct sg_segments *_Atomic fixed; /* of SG_MODE_SEGMENTS, and beside regions with `contiguous`; set once, under `lock` */
    struct sg_regions regions SG_GUARDED_BY(lock);
    struct sg_accounts accounts SG_GUARDED_BY(lock);
    struct sg_pending pending SG_GUARDED_BY(lock);
    struct sg_aliases aliases;
    struct sg_room room SG_GUARDED_BY(lock);
    struct sg_access access SG_GUARDED_BY(lock);
    struct sg_trace_streams streams SG_GUARDED_BY(lock);
    struct sg_stream_clocks clocks SG_GUARDED_BY(lock);
    struct sg_device_tags tags SG_GUARDED_BY(lock);
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
    const struct sg_replay *replay;
    _Atomic bool disabled;
    _Atomic bool shares;             /* by sg_core_share() */
    struct sg_lock setup;            /* guards the making of devices and the lists of contexts and ranges */
    struct sg_context_list contexts; /* changed under `setup` */
    struct sg_device *_Atomic device[SG_DEVICES_MAX];
    /* Notes of devices that are not ready yet, under `setup`. Noting something makes no device ready. If it was full
       just then, it would serve otherwise than without a trace. */
    struct sg_unready {
        uint64_t total_bytes;        /* 0: nothing was noted, and the trace does not define it */
        uint64_t outside_allocs;     /* as the statistic */
        uint64_t refused, ooms;      /* as the statistics */
        struct sg_outside outside;   /* as the observer has it */
        struct sg_shortage shortage; /* of the last call that was refused */
    } unready[SG_DEVICES_MAX];
    /* Ranges of addresses that are ours, for sg_core_owns(): only ever appended. */
    struct sg_range {
        CUdeviceptr begin, end;
        struct sg_device *device;
        struct sg_region *region;
        bool huge; /* its region is remade for each block */
    } range[SG_REGIONS_MAX * 16];
    _Atomic uint32_t range_count;
    struct sg_tag_name {
        char name[SG_TAG_NAME];
        enum sg_tag_keep keep; /* of its contents, while it is paused */
    } tag[SG_TAGS];            /* the first is no tag; only ever appended */
    _Atomic uint32_t tag_count;
};

/* The driver, for a call. No call is made under a device's `lock`. A call may wait for work, and that may wait for a
   thread which needs the lock. Builds that check locks assert it here, so every call goes by this function. */
static inline const struct sg_driver *sg_core_driver(const struct sg_core *core)
{
    SG_ASSERT_NONE_HELD_FROM(SG_RANK_DEVICE);
    return core->driver;
}

/* The range of ours that holds `address`; NULL: none does. No lock is needed: ranges are only appended, and the count
   is published after the entry. */
static inline const struct sg_range *sg_core_range_at(const struct sg_core *core, CUdeviceptr address)
{
    uint32_t count = atomic_load_explicit(&((struct sg_core *)core)->range_count, memory_order_acquire);
    for (const struct sg_range *range = core->range, *end = range + count; range != end; range++)
        if (address >= range->begin && address < range->end)
            return range;
    return NULL;
}

/* The device of an ordinal; NULL: it has not been made ready. No lock is needed. sg_device_get() makes it ready. */
static inline struct sg_device *sg_device_known(struct sg_core *core, int ordinal)
{
    return (unsigned)ordinal < SG_DEVICES_MAX ? atomic_load_explicit(&core->device[ordinal], memory_order_acquire)
                                              : NULL;
}

/* The capacity in bytes, read without `lock`. It may change before the reader takes `lock`. */
static inline uint64_t sg_device_capacity(const struct sg_device *device)
{
    return __atomic_load_n(&device->capacity_bytes, __ATOMIC_RELAXED);
}

/* Bytes of the device's own memory that are held: all that is, but for what lies elsewhere. */
static inline uint64_t sg_device_held_locked(const struct sg_device *device) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return device->accounts.usage.reserved.now - device->accounts.usage.overflow.now;
}

/* Adds to a counter of the statistics. It needs no lock, so calls of the driver count themselves where they are
   made. */
static inline void sg_count(struct sg_device *device, enum sg_stat stat, uint64_t amount)
{
    __atomic_fetch_add(&device->accounts.counter[stat], amount, __ATOMIC_RELAXED);
}

/* Gives one record to the observer: a trace, or nobody. The order of records is the order of decisions, so records of
   decisions are emitted under `lock`. */
static inline void sg_emit(struct sg_device *device, uint8_t kind, uint8_t flags, uint32_t stream, uint64_t id,
    uint64_t size)
{
    sg_event_emit(&device->core->observer, kind, flags, stream, id, size);
}

/* The index in the trace for no known stream of a device, and for a followed one (trace_streams.h). */
static inline uint32_t sg_unknown_stream_of(int ordinal)
{
    return (uint32_t)ordinal * (SG_STREAMS_MAX + SG_SLOTS);
}
static inline uint32_t sg_device_unknown_stream(const struct sg_device *device)
{
    return sg_unknown_stream_of(device->ordinal);
}
static inline uint32_t sg_device_slot_stream(const struct sg_device *device, sg_slot slot)
{
    return sg_device_unknown_stream(device) + SG_STREAMS_MAX + slot;
}

/* The slot of a stream of the trace, which must be one of the device's; 0: that stream is not followed. */
static inline sg_slot sg_device_slot_of(const struct sg_device *device, uint32_t stream)
{
    uint32_t first = sg_device_unknown_stream(device) + SG_STREAMS_MAX;
    assert(stream < first + SG_SLOTS);
    return stream > first ? stream - first : 0;
}

#endif
