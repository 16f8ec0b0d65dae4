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
    PARTS = 64,       /* of freed blocks that are looked at in one round */
    BLOCKS_USUAL = 8, /* freed blocks that one allocation looks at where it is not thorough: each takes a copy or more */
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
    bool fits = sg_live_tails(device) + SG_TAIL <= room_for_tails(device) && sg_core_is_plentiful(core, device, room);
    return fits ? room : bytes;
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
        return !sg_samples_waits_are_vain();
    *ret = request->stream;
    if (tag->slot ? !sg_work_stream(core, device, tag->slot, tag->context, ret)
                  : sg_streams_context_of(*ret) != tag->context || !sg_work_may(tag->context, *ret))
        return false;
    *ret_wait = !tag->slot || !sg_core_slot_is_fresh(core, device, tag->slot);
    return !*ret_wait || sg_work_is_idle(*ret);
}

/* The rows of the canary, behind what was asked for. */
static bool write_canary(const struct sg_freed *block, CUstream stream)
{
    return sg_work_went_well(sg_real()->cuMemsetD2D8Async(block->base + block->bytes, sg_canary_pitch(block),
        SG_CANARY_BYTE, SG_CANARY, 2, stream));
}

/* The parts of freed blocks that one look is about. Where it is thorough, a block has as many rounds as it needs: a round of 64
   parts, and the next one goes on at `done` bytes. Else it has one round. */
struct round {
    struct sg_part part[PARTS];
    size_t count;
    uint64_t done;
};

/* The next parts. Under SG_LOCK_CHECK. */
static void round_take(struct round *round, CUdeviceptr address, uint64_t room)
{
    bool thorough = sg_check_thorough();
    uint64_t bytes;
    round->count = sg_shadow_take(&sg_check_shadow, address + round->done, room - round->done, round->part, PARTS,
        thorough ? PARTS : BLOCKS_USUAL, &bytes);
    round->done += bytes;
    if (round->done < room && !thorough) {
        sg_check_left_out(SG_LEFT_OUT_MANY);
        sg_shadow_forget(&sg_check_shadow, address + round->done, room - round->done);
        round->done = room;
    }
}

/* Looks at a block that is handed out. The parts of freed blocks in it are read on the stream that gets it. With the last
   ones its canary is written there. A block that is for no stream may be used on any at once: the host waits for these copies
   alone. */
static void look_at_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    struct sg_freed *block, const struct round *round)
{
    bool last = round->done == block->fill.room;
    struct sg_lane *lane = sg_work_enter(tag->context);
    if (!lane)
        return;
    struct sg_reader reader = {.lane = lane, .now = {block->base, block->bytes, block->allocated}};
    if (block->fill.has_tail)
        reader.spared = block->base + sg_fill_stamp_at(&block->fill, 0);
    if (stream_of_allocation(core, lane, request, tag, device, &reader.stream, &reader.kept_all)) {
        for (size_t i = 0; i < round->count; i++)
            sg_reader_part(&reader, &round->part[i]);
        if (last && sg_check_parts & SG_CHECK_CANARY && block->fill.has_tail)
            block->canary = write_canary(block, reader.stream);
        if (reader.kept_all && block->canary && !reader.batch && !sg_reader_begin(&reader))
            reader.gave_up = true; /* nothing shows when it is written */
        sg_reader_send(&reader);
        if (last && request->has_stream && tag->slot)
            sg_core_slot_upkeep(core, device, tag->slot);
    } else {
        sg_work_has_no_stream();
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
    struct sg_mark first;
    if (!sg_marks_left(&freed->marks, &first))
        return;
    if (!request->has_stream) {
        const struct sg_finding finding = {.kind = SG_FINDING_EARLY,
            .device = device,
            .block = freed,
            .now = &now,
            .late = true,
            .late_stream = sg_mark_stream(&first)};
        sg_findings_add(&finding);
        return;
    }
    struct sg_lane *lane = sg_work_try(tag->context);
    if (!lane)
        return;
    struct sg_reader reader = {.lane = lane, .now = now, .stream = request->stream};
    if (tag->slot ? sg_work_stream(core, device, tag->slot, tag->context, &reader.stream)
                  : sg_streams_context_of(reader.stream) == tag->context && sg_work_may(tag->context, reader.stream))
        sg_reader_words(&reader, freed);
    sg_work_leave();
}

/* A round of looks. A freed block that has several parts has its marks looked at once. */
static void look_at_round(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    struct sg_freed *block, const struct round *round)
{
    for (size_t i = 0; i < round->count; i++) {
        bool seen = false;
        for (size_t k = 0; k < i; k++)
            seen |= round->part[k].freed == round->part[i].freed;
        if (!seen)
            look_at_marks(core, device, request, tag, block, &round->part[i]);
    }
    if (sg_check_parts & SG_CHECK_PARTS)
        look_at_given(core, device, request, tag, block, round);
}

/* The stamps of a block go to the other place where a freed block that ended there had its own. */
void sg_check_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    CUdeviceptr address, size_t bytes, size_t room)
{
    struct round round;
    unsigned place = 0;
    bool has_tail = room > bytes;
    round.done = 0;
    room = (room + SG_TAIL - 1) & ~(size_t)(SG_TAIL - 1); /* the core's unit: all of it is this block's */
    struct sg_check_note note = sg_check_note_now(tag);
    sg_process_lock(SG_LOCK_CHECK);
    bool ends = sg_shadow_ends_at(&sg_check_shadow, address + room, &place);
    struct sg_freed *block = sg_shadow_freed(&sg_check_shadow);
    if (!block)
        sg_shadow_forget(&sg_check_shadow, address, room);
    sg_process_unlock(SG_LOCK_CHECK);
    if (!block)
        return;
    block->device = device;
    block->base = address;
    block->bytes = bytes;
    block->allocated = note;
    block->fill.room = room;
    block->fill.has_tail = has_tail;
    block->fill.place = ends ? !place : 0;
    while (round.done < room) {
        sg_process_lock(SG_LOCK_CHECK);
        round_take(&round, address, room);
        sg_process_unlock(SG_LOCK_CHECK);
        look_at_round(core, device, request, tag, block, &round);
        for (size_t i = 0; i < round.count; i++)
            sg_live_drop(round.part[i].freed);
    }
    sg_live_put(block);
    sg_samples_poll(sg_check_driver, /* all */ false, sg_check_compare);
}
