/* The rungs of the growing ladder (grow.h), from the innermost function, which carries out one plan, to sg_grow(). */
#include "core/grow.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/remap/execute.h"
#include "core/remap/overflow.h"
#include "core/remap/page_alias.h"
#include "core/remap/plan.h"
#include "core/segments/fixed_segments.h"
#include "core/state/accounts.h"
#include "core/state/budget.h"
#include "core/state/mappings.h"
#include "core/state/outside_bytes.h"
#include "core/state/regions.h"
#include "core/state/replay_steps.h"
#include "core/state/tags.h"
#include "core/state/trace_streams.h"
#include "core/streams/fences.h"

/* Emits how far an allocation has come: pages in hand, and the driver's answer. A replay repeats that answer. */
static void emit_step_locked(struct sg_device *device, const struct sg_tag *tag, uint64_t pages, CUresult result)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    sg_emit(device, SEGALLOC_RECORD_SLOW_STEP, 0, sg_device_stream_locked(device, tag), pages, result);
}

enum { MAPPED_SHIFT = 32 }; /* in that record, of the pages that were mapped, over those that were created */

/* An allocation under way. */
struct request {
    struct sg_want want;
    size_t bytes;
    const struct sg_tag *tag;
    bool failed;    /* a driver call has, for another reason than that there is no page */
    bool no_access; /* the call that failed was for access to pages that were mapped */
    struct sg_far_bytes far; /* of its block */
};

/* Hands out the block of an extent. */
static CUdeviceptr hand_out_locked(struct sg_device *device, struct request *request, uint32_t extent) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    if (sg_purpose_kind(request->want.purpose) == SG_KIND_OVERFLOW)
        request->far = sg_overflow_note_locked(device, extent);
    return sg_device_hand_out_locked(device, extent, request->bytes, request->tag);
}

/* Carries a plan out and, while the driver has no more pages, goes on with free ones from elsewhere. *ret_failed: it
   ended because of another call, or another error. */
static CUresult perform_plan_growing(struct sg_device *device, const struct sg_tag *tag, struct sg_plan *plan,
    bool *ret_failed) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    for (;;) {
        (void)sg_replay_step(device);
        CUresult result = sg_plan_execute_growing(plan);
        if (result != CUDA_ERROR_OUT_OF_MEMORY || plan->created == plan->create || plan->parts.overflow) {
            *ret_failed = result != CUDA_SUCCESS;
            return result;
        }
        /* The refusal is remembered with all that is held, this plan's new pages included. Later plans then move
           pages rather than ask for more than that. */
        sg_device_lock(device);
        device->room.refused_at = sg_device_held_locked(device) + plan->created * sg_region_page_bytes(plan->region);
        emit_step_locked(device, tag, plan->created, result);
        bool more = sg_plan_continue_with_idle_locked(plan);
        sg_device_unlock(device);
        if (!more)
            return result;
        sg_count(device, SG_STAT_retries, 1);
    }
}

/* Takes free memory, or makes a plan for more. Where no region has addresses for the plan, one is added first.
   *ret_served true: there is no plan to carry out, and the result is final; CUDA_SUCCESS means that *ret is the
   block. */
static CUresult serve_or_plan_growing(struct sg_device *device, struct request *request, struct sg_plan *plan,
    bool *ret_served, CUdeviceptr *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_want want = request->want;
    CUresult result;
    *ret_served = true;
    for (;;) {
        (void)sg_replay_step(device);
        sg_device_lock(device);
        if (sg_tag_is_paused_locked(device, sg_purpose_tag(want.purpose))) { /* since it was asked for */
            emit_step_locked(device, request->tag, 0, CUDA_ERROR_NOT_PERMITTED);
            sg_device_unlock(device);
            return CUDA_ERROR_NOT_PERMITTED;
        }
        uint32_t extent = sg_device_take_thoroughly_locked(device, &want);
        if (!extent) {
            result = sg_plan_make_locked(device, want, plan);
            /* Making a plan joins what quick lists kept, so a range may fit by now. */
            if (result != CUDA_SUCCESS)
                extent = sg_device_take_locked(device, &want);
            if (!extent && result == CUDA_ERROR_OUT_OF_MEMORY)
                extent = sg_device_take_anywhere_locked(device, &want);
        }
        if (extent)
            *ret = hand_out_locked(device, request, extent);
        else
            emit_step_locked(device, request->tag, 0, result);
        sg_device_unlock(device);
        if (extent)
            return CUDA_SUCCESS;
        *ret_served = result != CUDA_SUCCESS;
        if (result != CUDA_ERROR_NOT_FOUND)
            return result;
        result = sg_device_add_region_growing(device, want.purpose, (uint64_t)want.units << SG_UNIT_SHIFT);
        if (result != CUDA_SUCCESS) {
            request->failed = result != CUDA_ERROR_OUT_OF_MEMORY;
            return result;
        }
    }
}

/* Ends a plan that the driver has failed. Everything is as it was before, and pages that were created but not used
   are given back. A plan that failed half-way, with all its pages in hand, has mapped or unmapped some: that is
   undone in replay steps of its own. The trace has the failure before them, so a replay comes to the same steps. */
static void abandon_plan_growing(struct sg_device *device, const struct request *request, struct sg_plan *plan,
    CUresult result) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    bool half_way = plan->created == plan->create;
    uint64_t pages = plan->created | (uint64_t)plan->mapped << MAPPED_SHIFT;
    (void)sg_replay_step(device);
    if (half_way) {
        sg_device_lock(device);
        emit_step_locked(device, request->tag, pages, result);
        sg_device_unlock(device);
        sg_plan_undo_growing(plan);
        (void)sg_replay_step(device);
    }
    sg_plan_drop_created_growing(plan);
    sg_device_lock(device);
    if (request->failed)
        sg_device_note_refusal_locked(device);
    if (half_way)
        sg_emit_step_locked(device, SEGALLOC_TURN_UNDONE, 0);
    else
        emit_step_locked(device, request->tag, pages, result);
    sg_plan_abandon_locked(plan);
    sg_usage_derive_locked(device);
    sg_device_unlock(device);
}

/* One attempt, rungs 3 to 7. A second plan follows where the first was made as if the driver had more pages. Its
   place was chosen for few new pages, and may stand where it keeps idle ones from being used. */
static CUresult attempt_allocation_growing(struct sg_device *device, struct request *request, CUdeviceptr *ret)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    struct sg_plan plan;
    bool served;
    /* Aliases that may go are unmapped first: their addresses are holes then, and their pages may move again. */
    sg_alias_unmap_completed_growing(device);
    CUresult result = serve_or_plan_growing(device, request, &plan, &served, ret);
    if (served)
        return result;
    result = perform_plan_growing(device, request->tag, &plan, &request->failed);
    if (result == CUDA_SUCCESS) {
        sg_device_lock(device);
        uint32_t extent = sg_plan_commit_locked(&plan);
        *ret = hand_out_locked(device, request, extent);
        sg_usage_derive_locked(device);
        sg_device_unlock(device);
        return CUDA_SUCCESS;
    }
    request->no_access = sg_plan_lacked_access_growing(&plan);
    abandon_plan_growing(device, request, &plan, result);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || request->failed || request->want.refused)
        return result;
    struct request again = *request;
    again.want.refused = true;
    result = attempt_allocation_growing(device, &again, ret);
    request->failed = again.failed;
    request->no_access = again.no_access;
    return result;
}

/* True if an error of cuMemSetAccess may mean that there are no mappings left. No documentation says which error that
   is. These two were seen with memory left (pytorch#188008, pytorch#192330). */
static bool may_mean_mappings(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_UNKNOWN;
}

/* The driver has twice given no access to pages that were mapped, with this error: most likely the machine has no
   mappings left. Gives idle pages back, makes new pages four times as large (SG_LARGER_PAGES), lets no page leave an
   alias any more, and says so in one line. Returns true if that was done now, so that another try may help: once a
   device. */
static bool mappings_refused_growing(struct sg_device *device, CUresult result) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    char line[300];
    const struct sg_core *core = device->core;
    if (sg_device_room_growing(device)->mappings_out || !may_mean_mappings(result))
        return false;
    sg_device_lock(device);
    device->room.mappings_out = true;
    if (core->conf.page_size == SG_AUTO)
        device->regions.page_bytes[SG_KIND_REGULAR] *= SG_LARGER_PAGES;
    sg_device_unlock(device);
    uint64_t given = sg_device_give_back_growing(device, UINT64_MAX);
    snprintf(line, sizeof line,
        "device %d: the driver maps no more pages (error %d), as when the %d mappings of a machine are out; %" PRIu64
        " MiB of idle pages were given back, none gets a second address, and new ones are of %" PRIu64 " MiB",
        device->ordinal, (int)result, SG_MAPPINGS_OF_MACHINE, given >> 20,
        sg_device_regions_growing(device)->page_bytes[SG_KIND_REGULAR] >> 20);
    if (core->callbacks.warn && !core->replay)
        core->callbacks.warn(line);
    return true;
}

/* The driver's memory management has failed SG_REFUSALS_MOST (8) allocations: fixed segments serve from here on.
   SEGALLOC_RECORD_FIXED says to a replay when. */
static void give_up_growing(struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    char line[200];
    if (device->core->replay || device->mode != SG_MODE_EXPANDABLE || !sg_segments_begin(device, /* whole */ false))
        return; /* the driver serves each by itself */
    snprintf(line, sizeof line,
        "device %d: the driver's memory management has failed %" PRIu32 " allocations, the last with error %d; new "
        "memory is taken by cuMemAlloc, in fixed segments",
        device->ordinal, sg_device_room_growing(device)->refusals, (int)device->pages.last_error);
    if (device->core->callbacks.warn)
        device->core->callbacks.warn(line);
}

/* Tries an attempt that the driver fails once more, unless it is out of pages or gone. A call that failed once may
   have met a busy driver. A third attempt follows where something could be done about the likeliest cause, mappings
   that are out. *noted: this allocation stands in the count of refusals already, which it does once, however often it
   begins again. */
static CUresult attempt_twice_growing(struct sg_device *device, struct request *request, bool *noted, CUdeviceptr *ret)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    request->failed = false;
    CUresult result = attempt_allocation_growing(device, request, ret);
    if (!request->failed || sg_driver_is_sticky(result))
        return result;
    struct request again = *request;
    again.failed = false;
    device->growth.second_try = !*noted;
    result = attempt_allocation_growing(device, &again, ret);
    device->growth.second_try = false;
    *noted |= again.failed;
    if (again.failed && again.no_access && mappings_refused_growing(device, result)) {
        again.failed = false;
        result = attempt_allocation_growing(device, &again, ret);
    }
    request->failed = again.failed;
    if (sg_device_room_growing(device)->refusals >= SG_REFUSALS_MOST)
        give_up_growing(device);
    return result;
}

/* True if an allocation of `bytes` is one for a fixed segment. */
static bool is_for_segment_locked(const struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    return device->fixed && bytes >= device->regions.below;
}

/* Notes what an allocation of `bytes` that has failed was short of. It lacks what it asked for beyond idle memory and
   room. Where both together would do, they were in pieces: then it counts as short by one granule. No limit of ours
   holds for calls of others. */
static void note_shortage_locked(struct sg_device *device, uint64_t bytes, enum segalloc_outside by) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    bool ours = by == SEGALLOC_OUTSIDE_OTHER;
    uint64_t limit = ours ? device->capacity_bytes : device->total_bytes;
    const struct sg_usage *usage = &device->accounts.usage;
    uint64_t held = sg_device_held_locked(device), outside = device->room.outside_exact;
    /* Two bounds: the limit, and what the device has left beside others. The smaller one is the room. */
    uint64_t allowed = limit > held ? limit - held : 0;
    uint64_t left = device->total_bytes > held + outside ? device->total_bytes - held - outside : 0;
    struct sg_shortage shortage = {
        .asked = bytes,
        .takes = ours && is_for_segment_locked(device, bytes) ? sg_segments_takes_locked(device, bytes) : bytes,
        .live = usage->requested.now,
        .used = usage->active.now,
        .allocated = usage->allocated.now,
        .pending = usage->pending.now,
        .reserved = held,
        .total = device->total_bytes,
        .limit = limit,
        .outside = outside,
        .given_up = device->accounts.counter[SG_STAT_waits_given_up] > 0,
        .idle = (device->fixed ? sg_segments_idle_locked(device) : 0) +
                (device->mode == SG_MODE_SEGMENTS ? 0 : sg_device_idle_locked(device)),
        .room = allowed < left ? allowed : left,
        .by = by,
    };
    if (ours)
        shortage.overflow_lacks = device->room.overflow_lacks;
    uint64_t had = shortage.idle + shortage.room;
    shortage.short_by = shortage.takes > had  ? shortage.takes - had
                        : device->granularity ? device->granularity
                                              : SG_UNIT;
    device->room.shortage = shortage;
}

/* Notes, emits and counts an allocation that failed. */
static void note_ran_out_locked(struct sg_device *device, size_t bytes, const struct sg_tag *tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    note_shortage_locked(device, bytes, SEGALLOC_OUTSIDE_OTHER);
    sg_emit(device, SEGALLOC_RECORD_ALLOCATE_FAILURE, SEGALLOC_FLAG_SHORT, sg_device_stream_locked(device, tag),
        device->room.shortage.short_by, bytes);
    sg_count(device, SG_STAT_refused, 1);
}

/* True if an allocation that has failed `leaves` the rest to others. A modest one always does: its caller asks again for
   less. A replay does as the recorded run did, where nobody says which one was modest. */
static bool is_left(const struct sg_tag *tag, const struct segalloc_trace_record *replayed, bool leaves)
{
    return leaves || tag->modest || (replayed && sg_replay_step_is(replayed, SEGALLOC_TURN_LEFT));
}

CUresult sg_device_ran_out(struct sg_device *device, size_t bytes, const struct sg_tag *tag)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    sg_device_lock(device);
    if (is_left(tag, replayed, false))
        sg_emit_step_locked(device, SEGALLOC_TURN_LEFT, bytes);
    else
        note_ran_out_locked(device, bytes, tag);
    sg_device_unlock(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void sg_device_refused_outside(struct sg_device *device, enum segalloc_outside by, uint64_t bytes)
{
    sg_device_lock(device);
    note_shortage_locked(device, bytes, by);
    sg_emit(device, SEGALLOC_RECORD_REFUSED_OUTSIDE, 0, sg_device_unknown_stream(device), by, bytes);
    sg_count(device, SG_STAT_refused, 1);
    sg_device_unlock(device);
}

/* Gives idle pages back beyond garbage_collection_threshold, as PyTorch does, or beyond a limit that has been lowered
   since. Moving pages cannot do that: it leaves as much held as before, so there would still be no room under the
   limit. */
static void collect_garbage_growing(struct sg_device *device) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    double threshold = device->core->conf.garbage_collection_threshold;
    if (!sg_replay_step_is(sg_replay_step(device), SEGALLOC_TURN_GARBAGE))
        return;
    sg_device_lock(device);
    uint64_t reserved = sg_device_held_locked(device), target = device->capacity_bytes;
    if (threshold > 0)
        target = (uint64_t)(threshold * (double)target);
    uint64_t garbage = reserved > target ? reserved - target : 0;
    if (garbage)
        sg_device_coalesce_completed_locked(device); /* what was freed after work that is complete by now is idle too */
    if (garbage || threshold > 0)
        sg_emit_step_locked(device, SEGALLOC_TURN_GARBAGE, garbage);
    sg_device_unlock(device);
    if (garbage)
        sg_device_give_back_growing(device, garbage);
}

/* How much asking the driver is worth. Events are recorded where another stream's memory might serve, and where pages
   might have to move. Elsewhere only those that are out are queried: a recorded event costs a call, and a new page is
   cheaper than news. */
static enum sg_ask how_to_ask(struct sg_device *device, const struct request *request)
{
    sg_slot slot = request->want.slot;
    sg_device_lock(device);
    uint64_t others = device->clocks.needs_fence & ~(slot ? sg_slot_bit(slot) : 0);
    bool is_worth_it = others ||
                       !sg_device_is_low_pressure_locked(device, (uint64_t)request->want.units << SG_UNIT_SHIFT);
    sg_device_unlock(device);
    return is_worth_it ? SG_ASK_FENCE : SG_ASK_QUERY;
}

/* True if more is pending than may be where memory is short (pending_limit). With pending_limit:auto that is 1/32
   (SG_SCARCE_SHARE) of what may be held. It counts once 92 % (SG_PENDING_PERCENT) of that was allocated at some time,
   and no more can be had.

   Why: with much pending in the way, blocks are placed wherever there is room. The parts of pages between them add up
   to what the next large block would need. It counts only frees that wait for all work; others are usable by their
   own stream. */
static bool is_over_pending_limit_locked(const struct sg_device *device, uint64_t bytes) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_usage *usage = &device->accounts.usage;
    uint64_t limit = device->core->conf.pending_limit;
    if (limit != SG_AUTO)
        return usage->pending.now > limit && !sg_device_is_low_pressure_locked(device, bytes);
    return device->pending.awaits_all.first && usage->pending.now > device->capacity_bytes / SG_SCARCE_SHARE &&
           (double)sg_device_allocated_peak_locked(device) >=
               SG_PENDING_PERCENT / 100.0 * (double)device->capacity_bytes &&
           sg_device_held_locked(device) + bytes > device->capacity_bytes;
}

/* Waits for the oldest of what is pending until no more than that is left. */
static void keep_pending_limit(struct sg_device *device, uint64_t bytes)
{
    for (bool over = true; over;) {
        sg_device_lock(device);
        over = is_over_pending_limit_locked(device, bytes);
        sg_device_unlock(device);
        over = over && sg_device_ask(device, SG_ASK_WAIT);
    }
}

/* How long an allocation has waited without news. */
struct patience {
    uint64_t frees, pending, busy; /* of the device, and bits of the streams that may have work left, the last time that
                                      any of it was something else */
    uint32_t rounds;               /* since then */
};

/* After so many rounds every event that was out has passed. Any that are out then are newer: each round recorded them
   in place of some that cannot be recorded, so they give no news. */
enum { ROUNDS_MOST = SG_FENCES + SG_SLOTS };

/* True if another wait is worth it: something was freed, completed or given work since, or the rounds are not over. */
static bool is_patient(struct sg_device *device, struct patience *patience)
{
    sg_device_lock(device);
    uint64_t frees = device->accounts.usage.frees, pending = device->accounts.usage.pending.now,
             busy = device->clocks.unfinished;
    sg_device_unlock(device);
    bool same = frees == patience->frees && pending == patience->pending && busy == patience->busy;
    patience->frees = frees;
    patience->pending = pending;
    patience->busy = busy;
    patience->rounds = same ? patience->rounds + 1 : 0;
    return patience->rounds < ROUNDS_MOST;
}

/* The last rung: waits for the oldest pending free. False: nothing is worth another try. No lock is held, because the
   work that is waited for may need another thread that is about to grow. A replay waits for nothing: its trace says
   whether there was another try. */
static bool grow_wait_for_memory(struct sg_device *device, struct patience *patience)
{
    if (device->core->replay) {
        const struct segalloc_trace_record *replayed = sg_replay_step(device);
        return replayed && replayed->kind != SEGALLOC_RECORD_ALLOCATE_FAILURE &&
               !sg_replay_step_is(replayed, SEGALLOC_TURN_LEFT) &&
               !sg_replay_step_is(replayed, SEGALLOC_TURN_OVERFLOW) &&
               !sg_replay_step_is(replayed, SEGALLOC_TURN_NEIGHBOUR);
    }
    return is_patient(device, patience) && sg_device_ask(device, SG_ASK_WAIT);
}

/* Decides who serves an allocation that the driver's memory management has failed: the driver itself by cuMemAlloc,
   where that keeps to the limit. Without a limit, a caller that gets "out of memory" asks the driver anyway, so
   nothing is said here. */
static CUresult leave_to_driver(struct sg_device *device, CUresult result, size_t bytes, const struct sg_tag *tag)
{
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    sg_device_lock(device);
    uint64_t held = sg_device_held_locked(device), most = device->capacity_bytes;
    bool fits = held <= most && bytes <= most - held, is_limited = most < device->total_bytes;
    bool leaves = is_left(tag, replayed, fits && (is_limited || result != CUDA_ERROR_OUT_OF_MEMORY));
    if (leaves)
        sg_emit_step_locked(device, SEGALLOC_TURN_LEFT, bytes);
    else
        note_ran_out_locked(device, bytes, tag);
    sg_device_unlock(device);
    return leaves ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The last rung: one more attempt, with what is lacking elsewhere. The first of a device is said. */
static CUresult serve_elsewhere(struct sg_device *device, const struct request *refused, CUdeviceptr *ret)
{
    struct request request = *refused;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!sg_overflow_is_asked(device, request.tag))
        return result;
    sg_replay_grow_lock(device);
    if (sg_overflow_begin_growing(device, request.bytes, request.tag, &request.want))
        result = attempt_allocation_growing(device, &request, ret);
    sg_device_lock(device);
    bool first = result == CUDA_SUCCESS && device->accounts.counter[SG_STAT_overflow_blocks] == 1;
    struct sg_overflow_lacks *lacks = &device->room.overflow_lacks;
    if (result != CUDA_SUCCESS && !lacks->any && !lacks->peer && !lacks->host)
        lacks->any = SG_OVERFLOW_DRIVER;
    sg_device_unlock(device);
    int neighbour = device->growth.neighbour.device;
    sg_grow_unlock(device);
    if (first && request.far.peer + request.far.host)
        sg_overflow_say(device, request.bytes, request.far, neighbour);
    return result == CUDA_SUCCESS || sg_driver_is_sticky(result) ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Ends an allocation whose tag was paused meanwhile. */
static CUresult leave_paused(struct sg_device *device, size_t bytes)
{
    (void)sg_replay_step(device);
    sg_device_lock(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_LEFT, bytes);
    sg_device_unlock(device);
    return CUDA_ERROR_NOT_PERMITTED;
}

CUresult sg_grow(struct sg_device *device, struct sg_want want, size_t bytes, const struct sg_tag *tag,
    CUdeviceptr *ret)
{
    struct request request = {.want = want, .bytes = bytes, .tag = tag};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    struct patience patience = {0};
    bool again = true, noted = false;
    /* Before `grow`: both may call the driver for long, and asking must not be done under it. */
    request.want.aliases = sg_alias_allowed(device, want.slot, bytes);
    sg_device_ask(device, how_to_ask(device, &request));
    if (!tag->modest)
        keep_pending_limit(device, bytes);
    /* The rungs under `grow`, then the wait without it. After a wait everything is tried again from the cheapest rung
       on. */
    while (again && result == CUDA_ERROR_OUT_OF_MEMORY) {
        sg_replay_grow_lock(device);
        sg_device_ask_outside_growing(device);
        collect_garbage_growing(device);
        sg_overflow_return_growing(device);
        result = attempt_twice_growing(device, &request, &noted, ret);
        sg_grow_unlock(device);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            again = !tag->modest && grow_wait_for_memory(device, &patience);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !request.failed)
        result = serve_elsewhere(device, &request, ret);
    if (result == CUDA_SUCCESS || sg_driver_is_sticky(result))
        return result;
    if (result == CUDA_ERROR_NOT_PERMITTED && !request.failed)
        return leave_paused(device, bytes);
    return request.failed ? leave_to_driver(device, result, bytes, tag) : sg_device_ran_out(device, bytes, tag);
}
