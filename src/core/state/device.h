/* A device and the core: what there is, by owner. No function here does more than read a field.

   Each struct belongs to one file, which says how it changes. Here these are regions.h, accounts.h, trace_streams.h,
   mappings.h, outside_bytes.h and access.h. Elsewhere they are fences.h and pending_frees.h of streams/, page_alias.h of remap/, grow.h. What guards a struct stands
   once, in struct sg_device.

   For example, a device that serves two blocks of 512 bytes has one small region (`regions.count` 1), one page of 2 MiB
   (`accounts.usage.reserved.now`), 1,024 bytes in blocks, and nothing in `pending`. */
#ifndef SG_CORE_STATE_DEVICE_H
#define SG_CORE_STATE_DEVICE_H

#include <assert.h>

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
    const struct sg_replay *replay;
    _Atomic bool disabled;
    _Atomic bool shares;             /* by sg_core_share() */
    struct sg_lock setup;            /* guards the making of devices and the lists of contexts and ranges */
    struct sg_context_list contexts; /* changed under `setup` */
    struct sg_device *_Atomic device[SG_DEVICES_MAX];
    /* Notes of devices that are not ready yet, under `setup`. To note something makes no device ready: where it was full
       just then, it would serve otherwise than without a trace. */
    struct sg_unready {
        uint64_t total_bytes;      /* 0: nothing was noted, and the trace does not define it */
        uint64_t outside_allocs;   /* as the statistic */
        struct sg_outside outside; /* as the observer has it */
    } unready[SG_DEVICES_MAX];
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

/* The capacity in bytes, read without `lock`. It may change before the reader takes `lock`. */
static inline uint64_t sg_device_capacity(const struct sg_device *device)
{
    return __atomic_load_n(&device->capacity_bytes, __ATOMIC_RELAXED);
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

/* The index in the trace for no known stream, and for a followed stream. */
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

/* The slot of a stream of the trace, which is one of the device's; 0: it is none's. */
static inline sg_slot sg_device_slot_of(const struct sg_device *device, uint32_t stream)
{
    uint32_t first = sg_device_unknown_stream(device) + SG_STREAMS_MAX;
    assert(stream < first + SG_SLOTS);
    return stream > first ? stream - first : 0;
}

#endif
