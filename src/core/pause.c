/* First the wait, with the look at the users of a tag's memory. Then the books of its regions, which change as a whole.
   Then the steps of a pause and of a resume, each with its undo, and the figures at the end.

   The records of a pause, each of a section of its own (state/replay_steps.h):

       PAUSE               begin_growing
       LATE_UNMAP, …       aliases, sg_alias_unmap_completed_growing
       TURN_PAUSE          enter_pause_growing: from here on the tag is paused
       TURN_CONTENTS       keep_contents_growing
       TURN_PAUSE_RUN, …   sg_pause_leave_growing, one for each run
       TURN_PAUSE_BACK, …  its undo, where one of them failed
       TURN_PAUSE_END      leave_pause_growing

   and those of a resume:

       RESUME              begin_growing
       TURN_PAUSE_RUN, …   mend_access_growing: pages that stayed when something failed
       TURN_GARBAGE, …     make_room_growing: idle pages go back
       TURN_PAUSE          enter_resume_growing
       TURN_PAUSE_RUN, …   sg_pause_come_growing, one for each run, and once more after more room was made
       TURN_CONTENTS       keep_contents_growing
       TURN_PAUSE_RUN, …   sg_pause_come_undo_growing, where it failed
       TURN_PAUSE_END      leave_resume_growing: the tag is awake, if all went well */
#include "core/pause.h"

#include "core/remap/execute.h"
#include "core/remap/pause_pages.h"
#include "core/space/paused.h"
#include "core/state/accounts.h"
#include "core/state/replay_steps.h"
#include "core/state/tags.h"
#include "core/streams/fences.h"

/* A pause is tried so often while work on the tag begins anew: another thread may free a block of it after the wait, and
   before `grow` is had. */
enum { ATTEMPTS = 16 };

/* The users of the memory of a tag, as far as they are known now. They only grow while regions are walked, and the walk
   is under one lock. A stream that comes to use the memory after that is the program's fault: nothing orders its work and
   the pause. */
struct users {
    uint64_t slots;
    bool all;     /* anybody: a block's stream is not known */
    bool pending; /* frees wait for all work */
};

/* Adds the users of a live block: its stream, those that were recorded, and those that may hold its address. */
static void add_block_users_locked(const struct sg_device *device, const struct sg_extent *extent, struct users *users)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_stream_clocks *clocks = &device->clocks;
    sg_slot slot = sg_device_slot_of(device, extent->stream);
    /* A stream that is gone may have passed the address on in ways that its slot does not say (R20). */
    bool known = slot && !(extent->users_mask & SG_USERS_ALL) && clocks->state[slot] == SG_SLOT_ALIVE &&
                 clocks->tracked_at[slot] < extent->alloc_seq;
    users->all = users->all || !known;
    if (known)
        users->slots |= sg_slot_bit(slot) | extent->users_mask |
                        sg_clocks_possible_users(clocks, slot, extent->alloc_seq, extent->idle_before, SG_USERS_POSSIBLE);
}

/* Adds all users of a region: of its blocks, of what was freed and may be in use still, and of free memory that is not
   complete. */
static void add_region_users_locked(const struct sg_device *device, const struct sg_region *region,
    struct users *users) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    for (uint32_t id = region->first; id; id = extents[id].next) {
        if (extents[id].state == SG_EXTENT_BLOCK)
            add_block_users_locked(device, &extents[id], users);
        if (extents[id].state == SG_EXTENT_PENDING) {
            users->slots |= extents[id].users_mask & ~SG_USERS_ALL;
            users->pending = users->pending || extents[id].users_mask & SG_USERS_ALL;
        }
    }
    for (uint32_t page = 0; region->owned.ordered && page < region->pages; page++)
        if (sg_page_is_there(region->memory.handle[page]) &&
            !sg_after_complete(region->owned.clocks, region->memory.after[page]))
            users->slots |= region->memory.after[page].slots;
}

/* Waits for the work that may touch the memory of a tag, unless it is paused already. No lock is held. */
static CUresult await_users(struct sg_device *device, uint32_t tag, bool everything)
{
    struct users users = {.all = everything};
    sg_device_lock(device);
    for (uint32_t i = 0; i < device->regions.count; i++)
        if (sg_purpose_tag(device->regions.purpose[i]) == tag)
            add_region_users_locked(device, device->regions.region[i], &users);
    bool peers = device->access.peer_accessed,
         any = device->tags.of[tag].reserved.now > 0 && !sg_tag_is_paused_locked(device, tag);
    sg_device_unlock(device);
    if (!any)
        return CUDA_SUCCESS;
    /* A peer's work is on no stream that is followed here, and a free that waits for all work waits for peers' too. */
    bool contexts = users.all || users.pending || peers;
    CUresult result = contexts ? sg_fences_await_contexts(device, users.pending || peers) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = sg_fences_await(device, users.slots);
    if (result == CUDA_SUCCESS && users.pending) { /* the work is over: its fences have passed */
        sg_device_ask(device, SG_ASK_FENCE);
        sg_device_ask(device, SG_ASK_WAIT);
    }
    return result;
}

/* Why a region can't be paused now. */
static enum sg_pause_why region_why_locked(const struct sg_device *device, const struct sg_region *region)
    SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    /* Its aliases may still be touched. Pages that are pinned for good are the worst reason: no wait helps. */
    enum sg_pause_why why = region->memory.stale ? SG_PAUSE_BUSY : SG_PAUSE_FINE;
    for (uint32_t page = 0; page < region->pages && why != SG_PAUSE_PINNED; page++) {
        if (!sg_page_is_there(region->memory.handle[page]))
            continue;
        if (region->memory.pin[page] & SG_PIN_ASKED)
            why = SG_PAUSE_PINNED;
        else if (!sg_region_movable_locked(region, page))
            why = SG_PAUSE_BUSY;
    }
    for (uint32_t id = region->first; id && why == SG_PAUSE_FINE; id = extents[id].next)
        why = extents[id].state == SG_EXTENT_PENDING ? SG_PAUSE_BUSY : SG_PAUSE_FINE;
    return why;
}

/* The same of all regions of a tag. */
static enum sg_pause_why tag_why_locked(const struct sg_device *device, uint32_t tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    enum sg_pause_why why = SG_PAUSE_FINE;
    for (uint32_t i = 0; i < device->regions.count && why != SG_PAUSE_PINNED; i++) {
        enum sg_pause_why its = sg_purpose_tag(device->regions.purpose[i]) == tag
                                    ? region_why_locked(device, device->regions.region[i])
                                    : SG_PAUSE_FINE;
        why = its != SG_PAUSE_FINE ? its : why;
    }
    return why;
}

/* Makes all regions of a tag paused, with its blocks in the accounts. */
static void begin_pause_locked(struct sg_device *device, uint32_t tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        struct sg_region *region = device->regions.region[i];
        if (sg_purpose_tag(device->regions.purpose[i]) != tag)
            continue;
        for (uint32_t id = region->first; id; id = extents[id].next)
            if (extents[id].state == SG_EXTENT_BLOCK)
                sg_device_account_paused_locked(device, &extents[id]);
        sg_region_pause_locked(region);
    }
    device->tags.paused |= UINT32_C(1) << tag;
}

/* Wakes all regions of a tag. */
static void end_pause_locked(struct sg_device *device, uint32_t tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    const struct sg_extent *extents = device->regions.extents.extent;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        struct sg_region *region = device->regions.region[i];
        if (sg_purpose_tag(device->regions.purpose[i]) != tag)
            continue;
        for (uint32_t id = region->first; id; id = extents[id].next)
            if (extents[id].state == SG_EXTENT_PAUSED)
                sg_device_account_woken_locked(device, &extents[id]);
        sg_region_wake_locked(region);
    }
    device->tags.paused &= ~(UINT32_C(1) << tag);
}

/* True if there are extents enough to wake a tag. */
static bool can_wake_locked(const struct sg_device *device, uint32_t tag) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    bool can = true;
    for (uint32_t i = 0; i < device->regions.count && can; i++)
        can = sg_purpose_tag(device->regions.purpose[i]) != tag || sg_region_can_wake_locked(device->regions.region[i]);
    return can;
}

/* Lists the pieces of a paused tag. Returns how many; SIZE_MAX: no host memory. *ret_bytes: of all. */
static size_t list_pieces_locked(struct sg_device *device, uint32_t tag, uint64_t *ret_bytes) SG_REQUIRES(lock)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->lock);
    SG_ASSERT_HELD(&device->growth.grow);
    const struct sg_extent *extents = device->regions.extents.extent;
    size_t count = 0;
    *ret_bytes = 0;
    for (uint32_t i = 0; i < device->regions.count; i++) {
        const struct sg_region *region = device->regions.region[i];
        if (sg_purpose_tag(device->regions.purpose[i]) != tag)
            continue;
        for (uint32_t id = region->first; (id = sg_region_next_paused_locked(region, id)); id = extents[id].next) {
            if (!sg_scratch_reserve(&device->growth.pieces, count + 1, sizeof(struct sg_memory_piece)))
                return SIZE_MAX;
            struct sg_memory_piece *pieces = device->growth.pieces.memory;
            pieces[count] =
                (struct sg_memory_piece){sg_region_address(region, extents[id].begin), extents[id].requested};
            *ret_bytes += pieces[count++].bytes;
        }
    }
    return count;
}

/* Has contents saved or put back, in a replay step of its own. */
static CUresult keep_contents_growing(struct sg_device *device,
    CUresult (*keep)(void *user, const struct sg_memory_piece *pieces, size_t count), void *user, size_t count)
    SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    CUresult result = keep && count ? keep(user, device->growth.pieces.memory, count) : CUDA_SUCCESS;
    result = (CUresult)sg_replay_step_outcome(replayed, SEGALLOC_TURN_CONTENTS, result);
    sg_device_lock(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_CONTENTS, result);
    sg_device_unlock(device);
    return result;
}

/* The ends of a pause or a resume, as the trace has them. */
enum pause_end { UNCHANGED, DONE, HALF };

/* Begins a pause or resume under `grow`: the record that says so. False: the tag is in that state already. */
static bool begin_growing(struct sg_device *device, uint32_t tag, bool pause) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    sg_device_lock(device);
    bool changes = sg_tag_is_paused_locked(device, tag) != pause;
    if (changes)
        sg_emit(device, pause ? SEGALLOC_RECORD_PAUSE : SEGALLOC_RECORD_RESUME, 0, sg_device_unknown_stream(device), tag,
            0);
    sg_device_unlock(device);
    return changes;
}

/* The first section of a pause: the regions become paused, unless something keeps them from it. *ret_runs, *ret_pieces:
   how many there are. */
static enum sg_pause_why enter_pause_growing(struct sg_device *device, uint32_t tag, uint32_t *ret_runs,
    size_t *ret_pieces, struct sg_pause_result *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    sg_device_lock(device);
    enum sg_pause_why why = tag_why_locked(device, tag);
    *ret_runs = sg_pause_runs_locked(device, tag, /* lacking */ false, &ret->bytes);
    if (why == SG_PAUSE_FINE && *ret_runs == UINT32_MAX)
        why = SG_PAUSE_NO_HOST;
    why = (enum sg_pause_why)sg_replay_step_outcome(replayed, SEGALLOC_TURN_PAUSE, why);
    if (why == SG_PAUSE_FINE) {
        begin_pause_locked(device, tag);
        *ret_pieces = list_pieces_locked(device, tag, &ret->contents);
        if (*ret_pieces == SIZE_MAX) {
            why = SG_PAUSE_NO_HOST;
            end_pause_locked(device, tag);
        }
    }
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE, why);
    sg_device_unlock(device);
    return why;
}

/* The last section of a pause. */
static void leave_pause_growing(struct sg_device *device, uint32_t tag, uint32_t runs, enum pause_end end,
    const struct sg_pause_result *result, bool saves) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    (void)sg_replay_step(device);
    sg_device_lock(device);
    if (end == DONE)
        sg_pause_left_locked(device, runs);
    if (end == UNCHANGED)
        end_pause_locked(device, tag);
    if (end != UNCHANGED) {
        sg_gauge_set(&device->tags.of[tag].saved, saves ? result->contents : 0);
        device->tags.of[tag].pauses++;
    }
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE_END, end);
    sg_usage_derive_locked(device);
    sg_device_unlock(device);
}

/* One attempt at a pause, under `grow`. */
static CUresult pause_growing(struct sg_device *device, uint32_t tag, const struct sg_backup *backup,
    struct sg_pause_result *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint32_t runs;
    size_t pieces = 0;
    bool half = false; /* some pages could not be put back after an error */
    if (!begin_growing(device, tag, /* pause */ true))
        return CUDA_SUCCESS;
    sg_alias_unmap_completed_growing(device);
    ret->why = enter_pause_growing(device, tag, &runs, &pieces, ret);
    if (ret->why != SG_PAUSE_FINE)
        return ret->why == SG_PAUSE_PINNED    ? CUDA_ERROR_NOT_PERMITTED
               : ret->why == SG_PAUSE_NO_HOST ? CUDA_ERROR_OUT_OF_MEMORY
                                              : CUDA_ERROR_NOT_READY;
    CUresult result = keep_contents_growing(device, backup ? backup->save : NULL, backup ? backup->user : NULL, pieces);
    if (result != CUDA_SUCCESS) {
        ret->why = SG_PAUSE_CONTENTS;
    } else {
        result = sg_pause_leave_growing(device, runs, &half);
        ret->why = result == CUDA_SUCCESS ? SG_PAUSE_FINE : SG_PAUSE_DRIVER;
    }
    /* Half done counts as paused: the contents are saved, and a resume brings back what is missing. */
    ret->changed = result == CUDA_SUCCESS || half;
    leave_pause_growing(device, tag, runs, result == CUDA_SUCCESS ? DONE : half ? HALF : UNCHANGED, ret,
        backup && backup->save);
    return result;
}

/* A device that can be paused; NULL: none. */
static struct sg_device *device_to_pause(struct sg_core *core, int ordinal)
{
    struct sg_device *device = sg_device_known(core, ordinal);
    return device && device->granularity && !atomic_load_explicit(&core->disabled, memory_order_relaxed) ? device
                                                                                                         : NULL;
}

CUresult sg_core_pause(struct sg_core *core, int ordinal, uint32_t tag, bool everything, const struct sg_backup *backup,
    struct sg_pause_result *ret)
{
    struct sg_device *device = tag && tag < SG_TAGS ? device_to_pause(core, ordinal) : NULL;
    CUresult result = CUDA_ERROR_NOT_READY;
    *ret = (struct sg_pause_result){.why = SG_PAUSE_CANNOT};
    if (!device)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (int i = 0; i < ATTEMPTS && (i == 0 || ret->why == SG_PAUSE_BUSY); i++) {
        *ret = (struct sg_pause_result){.why = SG_PAUSE_FINE};
        result = await_users(device, tag, everything);
        if (result != CUDA_SUCCESS) {
            ret->why = result == CUDA_ERROR_NOT_READY ? SG_PAUSE_BUSY : SG_PAUSE_CANNOT;
            return result;
        }
        sg_replay_grow_lock(device);
        result = pause_growing(device, tag, backup, ret);
        sg_grow_unlock(device);
        if (core->replay)
            break; /* the next attempt has a record of its own */
    }
    return result;
}

/* Bytes that must go before `more` can be held. */
static uint64_t bytes_in_the_way_locked(const struct sg_device *device, uint64_t more) SG_REQUIRES(lock)
{
    SG_ASSERT_HELD(&device->lock);
    uint64_t held = sg_device_held_locked(device) + more,
             over_limit = held > device->capacity_bytes ? held - device->capacity_bytes : 0,
             all = held + device->room.outside_bytes,
             over_device = all > device->total_bytes ? all - device->total_bytes : 0;
    return over_limit > over_device ? over_limit : over_device;
}

/* Gives idle pages back where the pages of a tag have no room beside them. */
static void make_room_growing(struct sg_device *device, uint32_t tag) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t bytes;
    (void)sg_replay_step(device);
    sg_device_lock(device);
    uint32_t runs = sg_pause_runs_locked(device, tag, /* lacking */ true, &bytes);
    uint64_t over = runs == UINT32_MAX ? 0 : bytes_in_the_way_locked(device, bytes);
    /* Parts of one page that several streams freed are an idle page only once they are joined. */
    sg_device_coalesce_completed_locked(device);
    sg_emit_step_locked(device, SEGALLOC_TURN_GARBAGE, over);
    sg_device_unlock(device);
    if (over)
        (void)sg_device_give_back_growing(device, over);
}

/* The first section of a resume: lists what it lacks, if that may be held. */
static enum sg_pause_why enter_resume_growing(struct sg_device *device, uint32_t tag, uint32_t *ret_runs,
    size_t *ret_pieces, struct sg_pause_result *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    const struct segalloc_trace_record *replayed = sg_replay_step(device);
    sg_device_lock(device);
    *ret_runs = sg_pause_runs_locked(device, tag, /* lacking */ true, &ret->bytes);
    *ret_pieces = list_pieces_locked(device, tag, &ret->contents);
    uint64_t held = sg_device_held_locked(device) + ret->bytes;
    /* A tag of which nothing is left needs no page, so no limit is in its way. */
    ret->lacking = ret->bytes && held > device->capacity_bytes ? held - device->capacity_bytes : 0;
    bool books = *ret_runs != UINT32_MAX && *ret_pieces != SIZE_MAX && can_wake_locked(device, tag);
    enum sg_pause_why why = !books ? SG_PAUSE_NO_HOST : ret->lacking ? SG_PAUSE_FULL : SG_PAUSE_FINE;
    why = (enum sg_pause_why)sg_replay_step_outcome(replayed, SEGALLOC_TURN_PAUSE, why);
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE, why);
    sg_device_unlock(device);
    return why;
}

/* The last section of a resume. */
static void leave_resume_growing(struct sg_device *device, uint32_t tag, bool done) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    (void)sg_replay_step(device);
    sg_device_lock(device);
    if (done) {
        end_pause_locked(device, tag);
        sg_gauge_set(&device->tags.of[tag].saved, 0);
        device->tags.of[tag].resumes++;
    }
    sg_emit_step_locked(device, SEGALLOC_TURN_PAUSE_END, done ? DONE : UNCHANGED);
    sg_usage_derive_locked(device);
    sg_device_unlock(device);
}

/* Brings the pages of a tag and its contents back. */
static CUresult bring_back_growing(struct sg_device *device, uint32_t runs, size_t pieces,
    const struct sg_backup *backup, struct sg_pause_result *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint32_t done = 0;
    CUresult result = sg_pause_come_growing(device, runs, &done);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && sg_device_give_back_growing(device, ret->bytes))
        result = sg_pause_come_growing(device, runs, &done); /* the driver has less than it was thought to */
    ret->why = result == CUDA_ERROR_OUT_OF_MEMORY ? SG_PAUSE_FULL : SG_PAUSE_DRIVER;
    ret->lacking = result == CUDA_ERROR_OUT_OF_MEMORY ? ret->bytes : 0;
    if (result == CUDA_SUCCESS) {
        result = keep_contents_growing(device, backup ? backup->restore : NULL, backup ? backup->user : NULL, pieces);
        ret->why = result == CUDA_SUCCESS ? SG_PAUSE_FINE : SG_PAUSE_CONTENTS;
    }
    if (result != CUDA_SUCCESS)
        sg_pause_come_undo_growing(device, done);
    return result;
}

/* Gives access to pages of a tag that stayed mapped when something failed. */
static CUresult mend_access_growing(struct sg_device *device, uint32_t tag) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint64_t bytes;
    sg_device_lock(device);
    uint32_t runs = sg_pause_runs_locked(device, tag, /* lacking */ false, &bytes);
    sg_device_unlock(device);
    return runs == UINT32_MAX ? CUDA_ERROR_OUT_OF_MEMORY : sg_pause_access_growing(device, runs);
}

/* One attempt at a resume, under `grow`: access for what stayed, room, pages, contents, and the end. */
static CUresult resume_growing(struct sg_device *device, uint32_t tag, const struct sg_backup *backup,
    struct sg_pause_result *ret) SG_REQUIRES(grow)
{
    SG_ASSERT_HELD(&device->growth.grow);
    uint32_t runs;
    size_t pieces = 0;
    if (!begin_growing(device, tag, /* pause */ false))
        return CUDA_SUCCESS;
    CUresult result = mend_access_growing(device, tag);
    if (result != CUDA_SUCCESS) {
        ret->why = SG_PAUSE_DRIVER;
        leave_resume_growing(device, tag, /* done */ false);
        return result;
    }
    make_room_growing(device, tag);
    ret->why = enter_resume_growing(device, tag, &runs, &pieces, ret);
    result = ret->why == SG_PAUSE_FINE ? bring_back_growing(device, runs, pieces, backup, ret)
                                       : CUDA_ERROR_OUT_OF_MEMORY;
    ret->changed = result == CUDA_SUCCESS;
    leave_resume_growing(device, tag, ret->changed);
    return result;
}

/* True on a device that never had regions: its memory is as a resume leaves it. */
static bool tag_is_never_paused(struct sg_core *core, int ordinal, uint32_t tag)
{
    const struct sg_device *device = tag && tag < SG_TAGS ? sg_device_known(core, ordinal) : NULL;
    return device && !device->granularity;
}

CUresult sg_core_resume(struct sg_core *core, int ordinal, uint32_t tag, const struct sg_backup *backup,
    struct sg_pause_result *ret)
{
    struct sg_device *device = tag && tag < SG_TAGS ? device_to_pause(core, ordinal) : NULL;
    *ret = (struct sg_pause_result){.why = SG_PAUSE_CANNOT};
    if (!device && tag_is_never_paused(core, ordinal, tag)) {
        ret->why = SG_PAUSE_FINE;
        return CUDA_SUCCESS;
    }
    if (!device)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < 2 && (i == 0 || ret->why == SG_PAUSE_FULL); i++) {
        if (i > 0) { /* what was freed, and may be in use still, can make room */
            sg_device_ask(device, SG_ASK_FENCE);
            sg_device_drain(device);
        }
        *ret = (struct sg_pause_result){.why = SG_PAUSE_FINE};
        sg_replay_grow_lock(device);
        result = resume_growing(device, tag, backup, ret);
        sg_grow_unlock(device);
        if (core->replay)
            break; /* the next attempt has a record of its own */
    }
    return result;
}

bool sg_core_tag_is_pinned(struct sg_core *core, int ordinal, uint32_t tag)
{
    struct sg_device *device = tag < SG_TAGS ? sg_device_known(core, ordinal) : NULL;
    if (!device)
        return false;
    sg_device_lock(device);
    bool pinned = tag_why_locked(device, tag) == SG_PAUSE_PINNED;
    sg_device_unlock(device);
    return pinned;
}

bool sg_core_tag_figures(struct sg_core *core, int ordinal, uint32_t tag, struct sg_tag_figures *ret)
{
    struct sg_device *device = tag < SG_TAGS ? sg_device_known(core, ordinal) : NULL;
    if (!device)
        return false;
    sg_device_lock(device);
    const struct sg_tag_use *use = &device->tags.of[tag];
    *ret = (struct sg_tag_figures){.requested = use->requested.now, .reserved = use->reserved.now,
        .saved = use->saved.now, .peak_requested = use->requested.peak, .peak_reserved = use->reserved.peak,
        .peak_saved = use->saved.peak, .pauses = use->pauses, .resumes = use->resumes,
        .paused = sg_tag_is_paused_locked(device, tag)};
    sg_device_unlock(device);
    return true;
}
