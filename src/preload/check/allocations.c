/* The stream that gets the memory reads what the shadow knows of it, as the first work on it. */
#include "check/allocations.h"

#include <stdatomic.h>

#include "check/compare.h"
#include "check/findings.h"
#include "check/live.h"
#include "check/read_back.h"
#include "check/state.h"
#include "check/work.h"
#include "process/hooks.h"
#include "process/locks.h"
#include "track/streams.h"

enum {
    PARTS = 64,      /* freed blocks that one allocation looks at */
    PARTS_USUAL = 8, /* the same where it is not thorough: each takes a copy or three */
    TAILS_SHARE = 256,
    SEGMENT_STEP = 2 << 20 /* bytes by which segments grow, as PyTorch's */
};

/* Bytes of tails that a device has room for; asked for once. 0: the driver does not say. */
static uint64_t room_for_tails(int device)
{
    static _Atomic uint64_t most[SG_DEVICES_MAX];
    uint64_t bytes = atomic_load_explicit(&most[device], memory_order_relaxed);
    size_t total;
    if (!bytes && sg_check_driver->device_total(&total, device) == CUDA_SUCCESS) {
        bytes = total / TAILS_SHARE;
        atomic_store_explicit(&most[device], bytes, memory_order_relaxed);
    }
    return bytes;
}

size_t sg_check_room(struct sg_core *core, int device, size_t bytes)
{
    if (bytes > SIZE_MAX / 2 || !(sg_check_parts & SG_CHECK_PARTS))
        return bytes;
    size_t room = ((bytes + SG_TAIL - 1) & ~(size_t)(SG_TAIL - 1)) + SG_TAIL;
    if (bytes >= SEGMENT_STEP && (bytes - 1) / SEGMENT_STEP != (room - 1) / SEGMENT_STEP &&
        sg_core_has_segments(core, device))
        return bytes;
    return sg_live_tails(device) + SG_TAIL <= room_for_tails(device) ? room : bytes;
}

/* The stream that is to do the first work on a block: the one that it is for, or ours. False: it may not. *ret_wait: the
   host has to wait for that work, since others may use the block at once.

   Others may be ordered after what the program has given the stream so far, by an event or by the host. They need not be
   ordered after our work then. So it is done where the program has given the stream work since, or where that is idle:
   then the wait is a short one. */
static bool stream_of_allocation(struct sg_core *core, struct sg_lane *lane, const struct sg_request *request,
    const struct sg_tag *tag, int device, CUstream *ret, bool *ret_wait)
{
    *ret_wait = true;
    *ret = sg_lane_reads(lane);
    if (!request->has_stream)
        return true;
    *ret = request->stream;
    if (tag->slot ? !sg_work_stream(core, device, tag->slot, tag->context, ret)
                  : sg_streams_context_of(*ret) != tag->context)
        return false;
    *ret_wait = !tag->slot || !sg_core_slot_is_fresh(core, device, tag->slot);
    return !*ret_wait || sg_work_is_idle(*ret);
}

/* Canary bytes behind what was asked for. */
static bool write_canary(const struct sg_freed *block, CUstream stream)
{
    return sg_work_went_well(
        sg_real()->cuMemsetD8Async(block->base + block->bytes, SG_CANARY_BYTE, sg_canary_bytes(block), stream));
}

/* Looks at a block that is handed out. The parts of freed blocks in it are read on the stream that gets it, then its canary
   is written there. A block that is for no stream may be used on any at once: the host waits for these copies alone. */
static void look_at_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    struct sg_freed *block, const struct sg_part *part, size_t count)
{
    struct sg_lane *lane = sg_work_enter(tag->context);
    if (!lane)
        return;
    struct sg_reader reader = {.lane = lane, .now = {block->base, block->bytes, block->allocated}};
    if (block->fill.has_tail)
        reader.spared = block->base + sg_fill_stamp_at(&block->fill, 0);
    if (stream_of_allocation(core, lane, request, tag, device, &reader.stream, &reader.kept_all)) {
        for (size_t i = 0; i < count; i++)
            sg_reader_part(&reader, &part[i]);
        if (sg_check_parts & SG_CHECK_CANARY && block->fill.has_tail)
            block->canary = write_canary(block, reader.stream);
        if (reader.kept_all && block->canary && !reader.batch && !sg_reader_begin(&reader))
            reader.gave_up = true; /* nothing shows when it is written */
        sg_reader_send(&reader);
        if (request->has_stream && tag->slot)
            sg_core_slot_upkeep(core, device, tag->slot);
    } else {
        sg_check_left_out(SG_LEFT_OUT_STREAM);
    }
    sg_work_leave();
    sg_reader_settle(&reader);
    if (reader.gave_up) {
        block->canary = false;
        block->unsettled = true;
    }
}

/* Looks at the marks that freed blocks need, of which some are not written yet: the stream that gets the memory copies the
   words first. Memory that is for no stream may be used by any at once, so none may be missing now. */
static void look_at_marks(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    const struct sg_freed *block, const struct sg_part *part)
{
    struct sg_freed *freed = part->freed;
    const struct sg_check_block now = {block->base, block->bytes, block->allocated};
    sg_process_lock(SG_LOCK_CHECK);
    bool left = sg_marks_left(&freed->marks);
    sg_process_unlock(SG_LOCK_CHECK);
    if (!left)
        return;
    if (!request->has_stream) {
        const struct sg_finding finding = {.kind = SG_FINDING_EARLY,
            .device = device,
            .block = freed,
            .now = &now,
            .late = true,
            .late_stream = sg_mark_stream(&freed->marks.mark[0])};
        sg_findings_add(&finding);
        return;
    }
    struct sg_lane *lane = sg_work_try(tag->context);
    if (!lane)
        return;
    struct sg_reader reader = {.lane = lane, .now = now, .stream = request->stream};
    if (tag->slot ? sg_work_stream(core, device, tag->slot, tag->context, &reader.stream)
                  : sg_streams_context_of(reader.stream) == tag->context)
        sg_reader_words(&reader, freed);
    sg_work_leave();
}

/* The place for the stamps of a block: the other one where a freed block had its own there. */
static unsigned stamps_place(CUdeviceptr address, size_t room, const struct sg_part *part, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct sg_fill *fill = &part[i].freed->fill;
        if (part[i].address + part[i].bytes == address + room && part[i].offset + part[i].bytes == fill->room)
            return !fill->place;
    }
    return 0;
}

void sg_check_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    CUdeviceptr address, size_t bytes, size_t room)
{
    struct sg_part part[PARTS];
    bool has_tail = room > bytes;
    room = (room + SG_TAIL - 1) & ~(size_t)(SG_TAIL - 1); /* the core's unit: all of it is this block's */
    struct sg_check_note note = sg_check_note_now(tag);
    sg_process_lock(SG_LOCK_CHECK);
    size_t most = sg_check_thorough() ? PARTS : PARTS_USUAL;
    size_t count = sg_shadow_take(&sg_check_shadow, address, room, part, most);
    struct sg_freed *block = sg_shadow_freed(&sg_check_shadow);
    sg_process_unlock(SG_LOCK_CHECK);
    if (count > most) {
        sg_check_left_out(SG_LEFT_OUT_MANY);
        count = most;
    }
    if (block) {
        block->device = device;
        block->base = address;
        block->bytes = bytes;
        block->allocated = note;
        block->fill.room = room;
        block->fill.has_tail = has_tail;
        block->fill.place = stamps_place(address, room, part, count);
        for (size_t i = 0; i < count; i++)
            look_at_marks(core, device, request, tag, block, &part[i]);
        if (sg_check_parts & SG_CHECK_PARTS)
            look_at_given(core, device, request, tag, block, part, count);
        sg_live_put(block);
    }
    for (size_t i = 0; i < count; i++)
        sg_live_drop(part[i].freed);
    sg_samples_poll(sg_check_driver, /* all */ false, sg_check_compare);
}
