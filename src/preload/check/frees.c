/* The fill comes before the core's free, so whoever is ordered after the free is ordered after the fill. */
#include "check/frees.h"

#include <stdatomic.h>

#include "check/compare.h"
#include "check/findings.h"
#include "check/held.h"
#include "check/live.h"
#include "check/read_back.h"
#include "check/state.h"
#include "check/work.h"
#include "inspect/inventory.h"
#include "process/hooks.h"
#include "process/process.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "track/contexts.h"

static _Atomic uint64_t frees, filled_bytes;

uint64_t sg_check_frees(void)
{
    return atomic_load_explicit(&frees, memory_order_relaxed);
}

void sg_check_count_free(struct sg_core *core, int device)
{
    atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
    sg_core_count(core, device, SG_STAT_checked_frees, 1);
}

uint64_t sg_check_filled(void)
{
    return atomic_load_explicit(&filled_bytes, memory_order_relaxed);
}

/* Fills the windows that have a pitch: by one call, or each by its own where they are too far apart for that. */
static bool fill_windows(const struct sg_freed *block, CUstream stream)
{
    const struct sg_real *real = sg_real();
    const struct sg_fill *fill = &block->fill;
    if (fill->pitch <= SG_PITCH_MOST)
        return sg_work_went_well(real->cuMemsetD2D32Async(block->base + fill->first, fill->pitch, fill->word,
            SG_WINDOW / 4, fill->windows, stream));
    bool well = true;
    for (uint32_t i = 0; i < fill->windows && well; i++)
        well = sg_work_went_well(
            real->cuMemsetD32Async(block->base + fill->first + i * fill->pitch, fill->word, SG_WINDOW / 4, stream));
    return well;
}

/* Fills a block on a stream: whole by one call, or its windows and its tail by three or more. False: the driver refused some
   of it, so nothing is known of these bytes. */
static bool fill_block(const struct sg_freed *block, CUstream stream)
{
    const struct sg_real *real = sg_real();
    const struct sg_fill *fill = &block->fill;
    uint64_t bytes = fill->room;
    bool well;
    if (fill->whole) {
        well = sg_work_went_well(real->cuMemsetD32Async(block->base, fill->word, fill->room / 4, stream));
    } else {
        uint64_t last = sg_fill_body(fill) - SG_WINDOW; /* from there on all: the last window, and the tail */
        bytes = (uint64_t)SG_WINDOW * (fill->windows + 1) + (fill->room - last);
        well = sg_work_went_well(real->cuMemsetD32Async(block->base, fill->word, SG_WINDOW / 4, stream)) &&
               fill_windows(block, stream) &&
               sg_work_went_well(
                   real->cuMemsetD32Async(block->base + last, fill->word, (fill->room - last) / 4, stream));
    }
    if (well) {
        atomic_fetch_add_explicit(&filled_bytes, bytes, memory_order_relaxed);
        sg_core_count(sg_process_core(), block->device, SG_STAT_check_filled_bytes, bytes);
    }
    return well;
}

/* Reads the canary on the stream that then fills the block. */
static void read_canary(struct sg_reader *reader, struct sg_freed *block)
{
    sg_reader_add(reader, (struct sg_sample){.freed = block,
                              .canary = true,
                              .offset = block->bytes,
                              .address = block->base + block->bytes,
                              .bytes = SG_CANARY,
                              .rows = 2,
                              .pitch = sg_canary_pitch(block)});
}

/* Each other user stamps the tail in its own order, and is recorded, so that the free waits for the stamp. One that is not
   known to come after the allocation need not come after the fill of the block before either, so it writes none. */
static bool stamp_by_others(struct sg_core *core, struct sg_freed *block, CUcontext context, uint64_t others)
{
    for (; others; others &= others - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(others);
        CUstream stream;
        if (!sg_work_stream(core, block->device, slot, context, &stream) ||
            !sg_work_went_well(sg_real()->cuMemsetD16Async(block->base + sg_fill_stamp_at(&block->fill, slot),
                sg_pattern_stamp(block->fill.word, slot), 1, stream))) {
            sg_work_has_no_stream();
            continue;
        }
        sg_core_slot_upkeep(core, block->device, slot);
        if (sg_core_record_stream(core, block->base, slot) != CUDA_SUCCESS)
            return false;
        block->fill.stamps |= sg_slot_bit(slot);
    }
    return true;
}

/* In the order of the block's stream, as stream_of_allocation() says. */
static bool fill_in_order(struct sg_core *core, struct sg_freed *block, struct sg_tag *tag,
    const struct sg_free_users *users, struct sg_reader *reader, bool canary)
{
    bool alone = !users->others, well = true, fresh = sg_core_slot_is_fresh(core, block->device, users->own);
    if (!sg_work_stream(core, block->device, users->own, tag->context, &reader->stream) ||
        (!alone && !block->fill.has_tail) || (!fresh && !sg_work_is_idle(reader->stream))) {
        sg_work_has_no_stream();
        return false;
    }
    reader->kept_all = !fresh;
    if (canary)
        read_canary(reader, block);
    block->freed.stream = reader->stream;
    block->freed.has_stream = true;
    block->order = alone ? "in the order of its stream" : "in the order of its stream, after others that used it";
    if (sg_check_parts & SG_CHECK_FILL && alone) {
        well = fill_block(block, reader->stream);
    } else if (sg_check_parts & SG_CHECK_FILL) {
        block->fill.has_body = false;
        well = sg_work_went_well(sg_real()->cuMemsetD32Async(block->base + block->fill.room - SG_TAIL, block->fill.word,
                   SG_TAIL_STAMPS / 4, reader->stream)) &&
               stamp_by_others(core, block, tag->context, users->after_alloc);
    }
    if (!fresh && !reader->batch && !sg_reader_begin(reader))
        reader->gave_up = true;
    sg_reader_send(reader);
    sg_core_slot_upkeep(core, block->device, users->own);
    if (fresh && !sg_core_slot_is_fresh(core, block->device, users->own))
        tag->sync = SG_FREE_SYNC_EVENT; /* an event was recorded meanwhile, perhaps before the fill */
    return well && sg_check_parts & SG_CHECK_FILL;
}

/* Fills a block by a stream of ours, after all work that there is. The free then waits for that stream too. */
static bool fill_after_all(struct sg_freed *block, CUcontext context, struct sg_reader *reader, bool canary)
{
    bool held = sg_held_any(context);
    if (held || !sg_lane_fills_after_all(reader->lane, sg_check_driver)) {
        sg_check_left_out(held ? SG_LEFT_OUT_HELD : SG_LEFT_OUT_DRIVER);
        return false;
    }
    reader->stream = sg_lane_fills(reader->lane);
    if (canary)
        read_canary(reader, block);
    sg_reader_send(reader);
    block->order = "after all work";
    return sg_check_parts & SG_CHECK_FILL && fill_block(block, reader->stream);
}

/* The work of `check` on a block that is about to be freed. True: it is filled. */
static bool look_at_free(struct sg_core *core, struct sg_freed *block, struct sg_tag *tag)
{
    struct sg_free_users users;
    bool canary = block->canary, done = false;
    if (!(sg_check_parts & SG_CHECK_PARTS)) /* guards alone */
        return false;
    if (block->unsettled) /* the core is to wait for our work too */
        tag->sync = tag->sync == SG_FREE_SYNC_STRICT ? tag->sync : SG_FREE_SYNC_EVENT;
    if (tag->sync == SG_FREE_SYNC_COMPLETE) {
        sg_check_left_out(SG_LEFT_OUT_COMPLETE);
        return false;
    }
    struct sg_lane *lane = sg_work_enter(tag->context);
    if (!lane)
        return false;
    struct sg_reader reader = {.lane = lane, .now = {block->base, 0, block->freed}};
    sg_fill_plan(block->fill.room, block->fill.has_tail, sg_check_thorough(), block->freed.event, &block->fill);
    if (!sg_core_free_users(core, block->base, tag, &users))
        sg_check_left_out(SG_LEFT_OUT_DRIVER);
    else if (users.in_order)
        done = fill_in_order(core, block, tag, &users, &reader, canary);
    else if (sg_contexts_only() != tag->context)
        sg_check_left_out(SG_LEFT_OUT_CONTEXT);
    else
        done = fill_after_all(block, tag->context, &reader, canary);
    if (tag->sync == SG_FREE_SYNC_STREAM && !users.in_order)
        tag->sync = SG_FREE_SYNC_EVENT; /* so that it covers the fill whatever has become known since */
    sg_work_leave();
    sg_reader_settle(&reader);
    if (reader.gave_up)
        tag->sync = SG_FREE_SYNC_EVENT;
    return done;
}

/* The block needs the marks of the streams by whose order the free goes. One that waits for all work adds none: work of
   others need not have used the block, and who has is known by the calls that named it. */
static void need_marks(struct sg_core *core, struct sg_freed *block, const struct sg_tag *tag)
{
    struct sg_free_users users;
    if (!sg_core_free_users(core, block->base, tag, &users) || !users.in_order)
        return;
    for (uint64_t left = users.others | sg_slot_bit(users.own); left; left &= left - 1) {
        struct sg_stream_id id;
        if (sg_core_slot_stream(core, block->device, (sg_slot)__builtin_ctzll(left), &id) && !id.per_thread)
            sg_marks_need(block, id.context, id.handle, false);
    }
}

struct sg_freed *sg_check_freeing(struct sg_core *core, CUdeviceptr address, struct sg_tag *tag)
{
    struct sg_freed *block = sg_live_take(address);
    if (!block)
        return NULL;
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    block->freed = sg_check_note_now(tag);
    sg_check_count_free(core, block->device);
    need_marks(core, block, tag);
    bool filled = look_at_free(core, block, tag);
    if (!filled)
        block->fill = (struct sg_fill){.room = block->fill.room, .place = block->fill.place};
    sg_process_lock(SG_LOCK_CHECK); /* one that is not filled is kept so that a second free of it is told as one */
    sg_shadow_put(&sg_check_shadow, block);
    sg_process_unlock(SG_LOCK_CHECK);
    sg_samples_poll(sg_check_driver, /* all */ false, sg_check_compare);
    return block;
}

/* Ends what sg_check_freeing() began. After a free the shadow has the references to the block, as far as it was filled.

   A free that did not happen leaves the block live, without a canary and with nothing known of its bytes. */
void sg_check_freed(struct sg_freed *block, bool done)
{
    if (!block)
        return;
    if (done) {
        sg_live_drop(block);
        return;
    }
    sg_process_lock(SG_LOCK_CHECK);
    bool has_tail = block->fill.room > ((block->bytes + SG_TAIL - 1) & ~(uint64_t)(SG_TAIL - 1));
    sg_shadow_forget(&sg_check_shadow, block->base, block->fill.room);
    sg_process_unlock(SG_LOCK_CHECK);
    block->fill = (struct sg_fill){.room = block->fill.room, .has_tail = has_tail};
    block->freed = (struct sg_check_note){0};
    sg_live_put(block);
}

void sg_check_refused(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    bool is_live, is_gone;
    struct sg_freed *block = sg_live_at(core, address, &is_live, &is_gone);
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    const struct sg_check_block now = {.address = address, .note = sg_check_note_now(tag)};
    CUcontext context;
    int device = 0; /* where there is no block and no context */
    if (block)
        device = block->device;
    else
        (void)sg_contexts_current(core, &context, &device);
    const struct sg_finding finding = {
        .kind = is_gone                                       ? SG_FINDING_GONE_FREE
                : block && !is_live && block->base == address ? SG_FINDING_DOUBLE_FREE
                                                              : SG_FINDING_WRONG_FREE,
        .device = device,
        .block = block,
        .now = &now,
        .address = address,
        .offset = block ? address - block->base : 0,
    };
    sg_findings_add(&finding);
    if (block)
        sg_live_drop(block);
}
