/* From below. Segments are found by address, and freed when the rules gave them back. Two functions are called by the
   rules, one to get a segment and one to give it back. Then come the state of a device, its blocks, and the end of
   contexts.

   The rules hold for an allocation as a whole, although the lock is dropped in the middle. Another thread may then
   allocate, free, or end a context. So whatever was looked up before the driver was asked is looked up again: the
   place in the table, and `asked`. */
#include "core/segments/fixed_segments.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "pytorch/caching_allocator.h"
#include "base/meta.h"
#include "core/state/accounts.h"
#include "core/state/replay_steps.h"
#include "core/state/trace_streams.h"

enum { SEGMENTS_ROOM = 1 << 16 };

/* First segment that ends after `address`. */
static uint32_t find_segment_locked(const struct sg_segments *fixed, CUdeviceptr address) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    uint32_t low = 0, high = fixed->segments;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (fixed->segment[middle].base + fixed->segment[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* True if an address lies in a segment. */
static bool inside_segment_locked(const struct sg_segments *fixed, CUdeviceptr address) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    uint32_t at = find_segment_locked(fixed, address);
    return at < fixed->segments && address >= fixed->segment[at].base;
}

/* Takes a segment of `context` out of those to be freed. False: none is left. */
static bool segments_take_doomed_locked(struct sg_segments *fixed, CUcontext context, struct sg_segment *ret)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    for (uint32_t i = fixed->doomed_count; i > 0; i--) {
        struct sg_segment *segment = &fixed->doomed[i - 1];
        if (segment->context != context)
            continue;
        *ret = *segment;
        *segment = fixed->doomed[--fixed->doomed_count];
        return true;
    }
    return false;
}

/* The context of a segment that is to be freed. False: there is none. */
static bool segments_next_doomed(struct sg_segments *fixed, CUcontext *ret_context)
{
    sg_device_lock(fixed->device);
    bool any = fixed->doomed_count > 0;
    if (any)
        *ret_context = fixed->doomed[fixed->doomed_count - 1].context;
    sg_device_unlock(fixed->device);
    return any;
}

/* Queries an event again and again for a moment, SG_QUESTIONS_MOST (1,000) times at most. One that was just recorded
   on an idle GPU passes within some microseconds, and each query takes about one. */
static CUresult ask_for_a_moment(const struct sg_driver *driver, CUevent event)
{
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < SG_QUESTIONS_MOST && result == CUDA_ERROR_NOT_READY; i++) {
        result = driver->event_query(event);
        if (result == CUDA_ERROR_NOT_READY)
            sched_yield();
    }
    return result;
}

/* True if a context has no work left, by an event over all of it. With `waits` its work may end meanwhile, and that
   wait has a bound. A driver that records no such events gives no answer, so it is false. */
static bool context_is_complete(const struct sg_driver *driver, CUcontext context, bool waits)
{
    CUevent event;
    if (!driver->ctx_record_event || driver->event_create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return false;
    bool complete = driver->ctx_record_event(context, event) == CUDA_SUCCESS &&
                    (waits ? driver->event_synchronize(event) : ask_for_a_moment(driver, event)) == CUDA_SUCCESS;
    (void)driver->event_destroy(event);
    return complete;
}

/* The segments that are freed: all; those of contexts without work, which is waited for; or those without work now. */
enum which { ALL, COMPLETE, COMPLETE_NOW };

/* Frees doomed segments, one after the other. Each context is entered, so that it cannot end between the look and the
   call. CUDA_ERROR_NOT_READY: one has work that was not waited for, and the rest stays. */
static CUresult free_segments(struct sg_segments *fixed, enum which which)
{
    struct sg_device *device = fixed->device;
    const struct sg_core *core = device->core;
    CUcontext context;
    while (segments_next_doomed(fixed, &context)) {
        struct sg_segment segment;
        int use = core->callbacks.enter_context ? core->callbacks.enter_context(context) : 0;
        bool waits = which != ALL && use >= 0 && !context_is_complete(sg_core_driver(core), context, which == COMPLETE);
        sg_device_lock(device);
        /* it may have gone with its context before that was kept */
        bool taken = !waits && segments_take_doomed_locked(fixed, context, &segment);
        sg_device_unlock(device);
        if (taken && use >= 0) {
            sg_count(device, SG_STAT_calls_free, 1);
            (void)sg_core_driver(core)->mem_free(segment.base);
        }
        if (use >= 0 && core->callbacks.leave_context)
            core->callbacks.leave_context(use);
        if (waits)
            return CUDA_ERROR_NOT_READY;
    }
    return CUDA_SUCCESS;
}

/* free_segments() for a thread that may wait. */
static CUresult free_all_segments(void *user)
{
    return free_segments(user, ALL);
}

/* Frees the segments that the rules have given back. cuMemFree waits for the context of each, so a helper thread
   calls it, and an allocation waits for that thread no longer than wait_limit. With a limit of 0 it would go on
   before the thread has begun. So segments that need no wait are freed first. Drops `lock` meanwhile, and returns
   with it held. */
static void free_doomed_locked(struct sg_segments *fixed) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    struct sg_device *device = fixed->device;
    const struct sg_core *core = device->core;
    if (!fixed->doomed_count)
        return;
    sg_device_unlock(device);
    if (core->callbacks.aside && core->conf.wait_limit <= 0)
        (void)free_segments(fixed, COMPLETE_NOW);
    CUresult result = core->callbacks.aside ? core->callbacks.aside(free_all_segments, fixed) : free_all_segments(fixed);
    if (result == CUDA_ERROR_OPERATING_SYSTEM) /* there can be no thread that waits */
        (void)free_segments(fixed, COMPLETE);
    /* what it has not come to is left for the next time */
    sg_device_lock(device);
}

/* Emits that nothing free serves the allocation that the rules decide on, once for each. It stands in the section in
   which that is found, whether the driver then has memory or not. Segments that the rules give back for it belong to
   that step. */
static void tell_slow_locked(struct sg_segments *fixed) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    if (!fixed->asked.replayed)
        sg_emit(fixed->device, SEGALLOC_RECORD_SLOW_BEGIN, 0, fixed->asked.stream, 0, fixed->asked.bytes);
    fixed->asked.replayed = true;
}

/* Asks the driver. In a replay the answer, and the address, on which the rules depend, are the recorded ones. */
static CUresult segments_ask_driver(struct sg_device *device, uint64_t bytes, CUdeviceptr *ret)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    sg_count(device, SG_STAT_calls_alloc, 1);
    if (!replayed)
        return sg_core_driver(device->core)->mem_alloc(ret, bytes);
    if (replayed->kind != SEGALLOC_RECORD_ALLOCATE)
        return (CUresult)replayed->size;
    *ret = replayed->id;
    return replayed->id <= UINT64_MAX - bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; /* a damaged file's */
}

/* Gets a segment of `bytes` for the rules, from the driver. -ENOMEM: the limit, the table or the driver has no more.
   `lock` is dropped for the call, so the bytes are counted before it: two threads together keep to the limit. */
static int segment_alloc_locked(void *user, uint64_t bytes, uint64_t *ret_address) SG_REQUIRES(lock)
{
    struct sg_segments *fixed = user;
    SG_ASSERT_HELD(&fixed->device->lock);
    struct sg_device *device = fixed->device;
    struct sg_usage *usage = &device->accounts.usage;
    CUdeviceptr base;
    /* The limit is kept before the driver is asked, and segments that are doomed go back first: the driver may need
       their memory. */
    if (usage->reserved.now + bytes > device->capacity_bytes || fixed->segments == SEGMENTS_ROOM)
        return -ENOMEM;
    sg_gauge_add(&usage->reserved, bytes);
    tell_slow_locked(fixed);
    const struct sg_segment_request asked = fixed->asked;
    free_doomed_locked(fixed);
    sg_device_unlock(device);
    CUresult result = segments_ask_driver(device, bytes, &base);
    sg_device_lock(device);
    fixed->asked = asked; /* another thread may have asked meanwhile */
    if (result != CUDA_SUCCESS) {
        sg_emit(device, SEGALLOC_RECORD_SLOW_STEP, 0, asked.stream, 0, result);
        sg_gauge_sub(&usage->reserved, bytes);
        return -ENOMEM;
    }
    sg_segments_given_out_locked(fixed, base, bytes);
    uint32_t at = find_segment_locked(fixed, base);
    for (uint32_t i = fixed->segments++; i > at; i--)
        fixed->segment[i] = fixed->segment[i - 1];
    fixed->segment[at] = (struct sg_segment){.base = base, .bytes = bytes, .context = asked.context};
    sg_gauge_add(&usage->segments, 1);
    sg_count(device, SG_STAT_grows, 1);
    *ret_address = base;
    return 0;
}

/* Takes a segment back from the rules. It is doomed: freed when `lock` is dropped. */
static void segment_free_locked(void *user, uint64_t address, uint64_t bytes) SG_REQUIRES(lock)
{
    struct sg_segments *fixed = user;
    SG_ASSERT_HELD(&fixed->device->lock);
    uint32_t at = find_segment_locked(fixed, address);
    assert(at < fixed->segments && fixed->segment[at].base == address);
    fixed->doomed[fixed->doomed_count++] = fixed->segment[at];
    for (uint32_t i = at; i + 1 < fixed->segments; i++)
        fixed->segment[i] = fixed->segment[i + 1];
    fixed->segments--;
    sg_gauge_sub(&fixed->device->accounts.usage.reserved, bytes);
    sg_gauge_sub(&fixed->device->accounts.usage.segments, 1);
}

static const struct sg_torch_ops native_ops = {.segment_alloc = segment_alloc_locked,
    .segment_free = segment_free_locked};

struct sg_segments *sg_segments_create(struct sg_device *device)
{
    struct sg_segments *fixed = sg_meta_map(sizeof *fixed);
    if (!fixed)
        return NULL;
    struct sg_torch_conf rules;
    sg_torch_conf_from(&device->core->conf, &rules);
    fixed->device = device;
    fixed->segment = sg_meta_map(SEGMENTS_ROOM * sizeof *fixed->segment);
    fixed->doomed = sg_meta_map(SEGMENTS_ROOM * sizeof *fixed->doomed);
    fixed->torch = sg_torch_create(&rules, device->total_bytes, &native_ops, fixed);
    if (fixed->segment && fixed->doomed && fixed->torch && sg_idmap_init(&fixed->live))
        return fixed;
    sg_segments_destroy(fixed);
    return NULL;
}

void sg_segments_destroy(struct sg_segments *fixed)
{
    if (fixed->torch)
        sg_torch_destroy(fixed->torch);
    sg_idmap_fini(&fixed->live);
    sg_meta_unmap(fixed->segment, SEGMENTS_ROOM * sizeof *fixed->segment);
    sg_meta_unmap(fixed->doomed, SEGMENTS_ROOM * sizeof *fixed->doomed);
    sg_meta_unmap(fixed, sizeof *fixed);
}

bool sg_segments_begin(struct sg_device *device, bool whole)
{
    /* Made without the lock, because it maps host memory. Another thread may be sooner; then this one's is not
       needed. */
    struct sg_segments *made = device->fixed ? NULL : sg_segments_create(device);
    sg_device_lock(device);
    if (made && !device->fixed) {
        device->fixed = made;
        made = NULL;
    }
    /* With `contiguous` there are segments already, beside regions. */
    bool begins = device->fixed && device->mode != SG_MODE_SEGMENTS;
    if (begins) {
        device->mode = SG_MODE_SEGMENTS;
        device->regions.below = 0;
    }
    bool changes = device->fixed && whole && sg_torch_keep_whole(device->fixed->torch);
    if (begins || changes)
        sg_emit(device, SEGALLOC_RECORD_FIXED, 0, sg_device_unknown_stream(device), 0, whole);
    sg_device_unlock(device);
    if (made) /* another thread was sooner */
        sg_segments_destroy(made);
    return device->fixed;
}

/* The index in the trace of the stream under which a block is served: that of its pool. Slots are left out, also
   where streams are followed for memory in regions. */
static uint32_t pool_stream_locked(struct sg_device *device, const struct sg_tag *tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_tag plain = *tag;
    plain.slot = 0;
    return sg_device_stream_locked(device, &plain);
}

/* Takes a block by the rules. `lock` is dropped while the driver is asked. Frees here are complete when they take
   effect, so all streams of a context share one pool. */
static int segments_take_block_locked(struct sg_device *device, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_segments *fixed = device->fixed;
    struct sg_torch_block *block;
    uint32_t id = extents_left_locked(&device->regions.extents, SG_EXTENTS_SPARE)
                      ? extents_take_locked(&device->regions.extents)
                      : 0;
    if (!id)
        return -ENOMEM;
    fixed->asked =
        (struct sg_segment_request){.bytes = bytes, .stream = pool_stream_locked(device, tag), .context = tag->context};
    /* A pool for each context, because the end of a context frees its segments: no block of another may stand in
       them. To the rules the context is the stream. */
    int status = sg_torch_alloc(fixed->torch, bytes, /* stream */ (uint64_t)(uintptr_t)tag->context, &block);
    CUdeviceptr address = status == 0 ? sg_torch_address(block) : 0;
    if (status == 0 && !sg_idmap_put(&fixed->live, address, id)) {
        sg_torch_free(fixed->torch, block);
        status = -ENOMEM;
    }
    if (status != 0) {
        tell_slow_locked(fixed);
        extents_give_back_locked(&device->regions.extents, id);
        return status;
    }
    fixed->segment[find_segment_locked(fixed, address)].live++;
    uint64_t rounded = sg_torch_bytes(block);
    device->regions.extents.extent[id] = (struct sg_extent){.state = SG_EXTENT_BLOCK,
        .requested = bytes,
        .stream = pool_stream_locked(device, tag),
        .context = (uint64_t)(uintptr_t)tag->context,
        .event = (uint64_t)(uintptr_t)block,
        .alloc_seq = ++device->clocks.seq};
    sg_usage_allocate(&device->accounts.usage, bytes, rounded, /* small */ false);
    sg_usage_derive_locked(device);
    sg_extent_set_site_locked(&device->regions.extents, id, tag->site, tag->phase);
    sg_emit(device, SEGALLOC_RECORD_ALLOCATE, tag->torch ? SEGALLOC_FLAG_TORCH : 0,
        device->regions.extents.extent[id].stream, address, bytes);
    *ret = address;
    return 0;
}

CUresult sg_segments_malloc(struct sg_device *device, size_t bytes, const struct sg_tag *tag, CUdeviceptr *ret)
{
    sg_device_lock(device);
    int status = segments_take_block_locked(device, bytes, tag, ret);
    free_doomed_locked(device->fixed);
    sg_device_unlock(device);
    return status == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sg_segments_owns(struct sg_device *device, CUdeviceptr address)
{
    sg_device_lock(device);
    bool owns = inside_segment_locked(device->fixed, address);
    sg_device_unlock(device);
    return owns;
}

/* The extent of the live block that starts at an address, or with `inside` holds it; 0: none does. */
static uint32_t segment_block_at_locked(const struct sg_device *device, CUdeviceptr address, bool inside,
    CUdeviceptr *ret_base) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_idmap *live = &device->fixed->live;
    uint32_t id = (uint32_t)sg_idmap_get(live, address);
    *ret_base = address;
    for (size_t i = 0; inside && !id && i <= live->mask; i++) {
        const struct sg_idmap_entry *entry = &live->entry[i];
        if (entry->value && address > entry->id &&
            address - entry->id < device->regions.extents.extent[entry->value].requested) {
            id = (uint32_t)entry->value;
            *ret_base = entry->id;
        }
    }
    return id;
}

CUresult sg_segments_block(struct sg_device *device, CUdeviceptr address, bool inside, struct sg_block_info *ret)
{
    CUdeviceptr base;
    sg_device_lock(device);
    uint32_t id = segment_block_at_locked(device, address, inside, &base);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    if (id)
        *ret = (struct sg_block_info){base, extent->requested, device->ordinal, (CUcontext)(uintptr_t)extent->context,
            extent->alloc_seq, extent->later != 0, false};
    sg_device_unlock(device);
    return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sg_segments_used_cross_device(struct sg_device *device, CUdeviceptr address)
{
    CUdeviceptr base;
    sg_device_lock(device);
    uint32_t id = segment_block_at_locked(device, address, /* inside */ true, &base);
    if (id)
        device->regions.extents.extent[id].later = 1; /* of no other use here */
    sg_device_unlock(device);
}

/* Frees a block: emits and accounts for it, and gives it to the rules. Its entry in `live` is gone already. */
static void segment_release_locked(struct sg_device *device, CUdeviceptr address, uint32_t id, uint8_t flags)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extent = &device->regions.extents.extent[id];
    struct sg_torch_block *block = (struct sg_torch_block *)(uintptr_t)extent->event;
    uint64_t rounded = sg_torch_bytes(block);
    sg_emit(device, SEGALLOC_RECORD_FREE, flags, extent->stream, address, extent->requested);
    sg_usage_free(&device->accounts.usage, extent->requested, rounded, /* small */ false);
    sg_gauge_sub(&device->accounts.usage.active, rounded);
    device->fixed->segment[find_segment_locked(device->fixed, address)].live--;
    sg_torch_free(device->fixed->torch, block);
    extents_give_back_locked(&device->regions.extents, id);
    sg_usage_derive_locked(device);
}

CUresult sg_segments_free(struct sg_device *device, CUdeviceptr address, const struct sg_tag *tag, bool waited)
{
    uint8_t flags = (uint8_t)((waited ? SEGALLOC_FLAG_STRICT : 0) | (tag->torch ? SEGALLOC_FLAG_TORCH : 0));
    sg_device_lock(device);
    uint32_t id = (uint32_t)sg_idmap_take(&device->fixed->live, address);
    if (id)
        segment_release_locked(device, address, id, flags);
    sg_device_unlock(device);
    return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

uint64_t sg_segments_idle_locked(const struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t idle = 0;
    for (uint32_t i = 0; i < device->fixed->segments; i++)
        idle += device->fixed->segment[i].live ? 0 : device->fixed->segment[i].bytes;
    return idle;
}

uint64_t sg_segments_idle_now(struct sg_device *device)
{
    struct sg_segments *fixed = device->fixed;
    const struct sg_core *core = device->core;
    CUcontext context[SG_CONTEXTS_MAX];
    uint64_t idle = 0;
    sg_device_lock(device);
    /* The contexts are copied, since each is entered and asked without the lock. */
    uint32_t contexts = fixed->contexts;
    memcpy(context, fixed->context, sizeof context);
    sg_device_unlock(device);
    for (uint32_t i = 0; i < contexts; i++) {
        int use = core->callbacks.enter_context ? core->callbacks.enter_context(context[i]) : 0;
        bool complete = use >= 0 && context_is_complete(sg_core_driver(core), context[i], /* waits */ false);
        if (use >= 0 && core->callbacks.leave_context)
            core->callbacks.leave_context(use);
        sg_device_lock(device);
        for (uint32_t j = 0; complete && j < fixed->segments; j++)
            if (fixed->segment[j].context == context[i] && !fixed->segment[j].live)
                idle += fixed->segment[j].bytes;
        sg_device_unlock(device);
    }
    return idle;
}

uint64_t sg_segments_takes_locked(const struct sg_device *device, uint64_t bytes)
{
    SG_ASSERT_HELD(&device->lock);
    return sg_torch_takes(device->fixed->torch, bytes);
}

uint64_t sg_segments_empty_locked(struct sg_device *device)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t before = device->accounts.usage.reserved.now;
    sg_torch_empty_cache(device->fixed->torch);
    return before - device->accounts.usage.reserved.now;
}

void sg_segments_settle(struct sg_device *device)
{
    sg_device_lock(device);
    free_doomed_locked(device->fixed);
    sg_device_unlock(device);
}

uint64_t sg_segments_trim(struct sg_device *device)
{
    sg_device_lock(device);
    sg_emit(device, SEGALLOC_RECORD_EMPTY_CACHE, 0, sg_device_stream_locked(device, &(struct sg_tag){0}), 0, 0);
    uint64_t given = sg_segments_empty_locked(device);
    sg_device_unlock(device);
    sg_segments_settle(device);
    return given;
}

/* Frees every live block of a context; NULL: all. */
static void segment_release_all_locked(struct sg_device *device, CUcontext context) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    struct sg_idmap *live = &device->fixed->live;
    for (size_t i = 0; i <= live->mask;) {
        struct sg_idmap_entry entry = live->entry[i];
        bool goes = entry.value &&
                    (!context || device->regions.extents.extent[entry.value].context == (uint64_t)(uintptr_t)context);
        if (goes) { /* what is shifted back into this entry is looked at next */
            sg_idmap_take(live, entry.id);
            segment_release_locked(device, entry.id, (uint32_t)entry.value, SEGALLOC_FLAG_STRICT);
        } else {
            i++;
        }
    }
}

void sg_segments_forget_locked(struct sg_segments *fixed, CUcontext context)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    struct sg_device *device = fixed->device;
    struct sg_segment gone;
    sg_emit(device, SEGALLOC_RECORD_CONTEXT_GONE, 0,
        sg_device_stream_locked(device, &(struct sg_tag){.context = context}), 0, 0);
    sg_torch_empty_stream(fixed->torch, (uint64_t)(uintptr_t)context);
    while (segments_take_doomed_locked(fixed, context, &gone)) { /* those are not to be freed any more */
    }
}

/* True if a context has segments, to be freed or not. */
static bool has_segments_locked(const struct sg_segments *fixed, CUcontext context) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    bool has = false;
    for (uint32_t i = 0; i < fixed->segments && !has; i++)
        has = fixed->segment[i].context == context;
    for (uint32_t i = 0; i < fixed->doomed_count && !has; i++)
        has = fixed->doomed[i].context == context;
    return has;
}

/* Frees the blocks of a context that has ended, and forgets its segments. */
static void segments_bury_locked(struct sg_segments *fixed, CUcontext context) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    segment_release_all_locked(fixed->device, context);
    sg_segments_forget_locked(fixed, context);
}

void sg_segments_given_out_locked(struct sg_segments *fixed, CUdeviceptr address, uint64_t bytes)
{
    SG_ASSERT_HELD(&fixed->device->lock);
    uint32_t at;
    while ((at = find_segment_locked(fixed, address)) < fixed->segments && fixed->segment[at].base < address + bytes)
        segments_bury_locked(fixed, fixed->segment[at].context);
}

void sg_segments_context_gone(struct sg_device *device, CUcontext context)
{
    sg_device_lock(device);
    if (!context)
        segment_release_all_locked(device, NULL);
    else if (has_segments_locked(device->fixed, context))
        segments_bury_locked(device->fixed, context);
    sg_device_unlock(device);
}

struct sg_device *sg_core_segments_at(const struct sg_core *core, CUdeviceptr address)
{
    for (int i = 0; i < SG_DEVICES_MAX; i++) {
        struct sg_device *device = atomic_load_explicit(&((struct sg_core *)core)->device[i], memory_order_acquire);
        if (device && device->fixed && sg_segments_owns(device, address))
            return device;
    }
    return NULL;
}
