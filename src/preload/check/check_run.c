/* Allocations and frees as they are looked at: which stream does what, and what is left out.

   A free goes one of three ways. In the order of a stream, without other users: that stream fills the block. With other
   users: each of them stamps the tail. Not in the order of a stream: a stream of ours waits for all work, then fills;
   the free of the core covers that stream, because it waits for all that was given to the context by then.

   One block from begin to end. A program asks for 1,000 bytes on stream 7, and then frees them.

      1. sg_check_room() says 1,536, and the core gives 1,536 bytes at A.
      2. sg_check_given() takes what the shadow knows of these bytes: a block of 1,536 bytes that was freed as event 40.
         Stream 7 has a kernel that nobody waits for, so it is fresh. Its first work on the block is a copy of 1,408
         bytes into batch 3; the 128 bytes of the block's own stamps are spared. A set of 280 bytes follows, which is the
         canary, and an event.
      3. The program has the address. It never sees the last 536 bytes: cuMemGetAddressRange answers 1,000.
      4. The program gives stream 7 a kernel, and frees the block. sg_check_freeing() takes it out of the table of live
         blocks. The core says that the free would go by stream 7, without others. The canary is read into batch 4, all
         1,536 bytes are filled with the word of event 52, and the shadow has them.
      5. The core frees the block: whoever is ordered after this free is ordered after the fill.
      6. The event of batch 3 has passed. 1,408 bytes are compared with the word of event 40. Nothing differs, so the last
         reference to that freed block is given back.

   A free that is refused. The core may say that a capture has begun, after the block was filled. The program has freed
   it, so its bytes are nobody's. The block goes back into the table, without a canary, and its free comes later.

   Errors. A call of the driver that fails leaves the bytes unknown, and is counted. After an error that stays, nothing
   more is asked of the driver: the program gets that error from its own next call. */
#include "check/check_run.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rest.h"
#include "check/compare.h"
#include "check/findings.h"
#include "check/samples.h"
#include "check/watch_driver.h"
#include "process/hooks.h"
#include "process/process.h"
#include "services/hazard_annotations.h"
#include "sites/note.h"
#include "sites/sites.h"
#include "track/captures.h"
#include "track/contexts.h"
#include "track/streams.h"

enum {
    PARTS = 64,        /* freed blocks that one allocation looks at */
    PARTS_USUAL = 8,   /* the same where it is not thorough: each takes a copy or three */
    SAMPLE_BYTES = 512,
    FAILED_STATUS = 4, /* `check:fail` */
    PATIENCE_NS = 1000000000, /* of a thorough run for memory of the ring */
    END_NS = 2000000000
};

/* LEFT_OUT(name, words): why an allocation or a free was not looked at.

     CAPTURE    work on any stream could ruin the capture, or become a node of its graph
     CONTEXT    the current context is a green one, or there is no lane for it; or a free that is to wait for all work
                has several contexts to wait for, and an event covers one
     STREAM     the stream is not fresh and not idle, is of another context, or cannot be named by this thread
     COMPLETE   the caller has waited by itself, so the core gives the memory out at once, without a wait for a fill
     RING       all batches of the context are out
     MANY       a large block took the place of more than 8 small ones, or 64 in a thorough run
     DRIVER     the driver lacks a call, or has refused it
     LOST       the context has ended before the copies were known to be there */
#define LEFT_OUT_REASONS(LEFT_OUT)                                         \
    LEFT_OUT(CAPTURE, "during captures")                                   \
    LEFT_OUT(CONTEXT, "beside other contexts")                             \
    LEFT_OUT(STREAM, "of streams that others may already come after")        \
    LEFT_OUT(COMPLETE, "after a wait of the caller")                       \
    LEFT_OUT(RING, "while too many samples were on their way")             \
    LEFT_OUT(MANY, "of more freed blocks than one allocation looks at")    \
    LEFT_OUT(DRIVER, "refused by the driver")                              \
    LEFT_OUT(LOST, "gone with their context")

enum left_out {
#define LEFT_OUT(name, words) LEFT_OUT_##name,
    LEFT_OUT_REASONS(LEFT_OUT)
#undef LEFT_OUT
    LEFT_OUT_COUNT
};

atomic_bool sg_check_goes_on;
static const struct sg_driver *driver; /* the core's; constant from the start on */
static unsigned parts; /* of enum sg_check_part; constant from the start on */
static struct sg_idmap live; /* address to block; guarded by SG_LOCK_CHECK */
static _Atomic uint64_t events, frees, filled_bytes, left_out[LEFT_OUT_COUNT];
static atomic_bool ended;

/* Counts what is not looked at, for the last line. */
static void count_left_out(enum left_out why)
{
    atomic_fetch_add_explicit(&left_out[why], 1, memory_order_relaxed);
}

static bool is_thorough(void)
{
    return parts & SG_CHECK_THOROUGH;
}

/* Where and when an allocation or a free is made, by the calling thread. Counts it as an event. */
static struct sg_check_note note_now(const struct sg_tag *tag)
{
    return (struct sg_check_note){
        .site = sg_self.place.shown,
        .phase = sg_self.place.phase,
        .stream = tag->stream,
        .has_stream = tag->has_stream,
        .event = atomic_fetch_add_explicit(&events, 1, memory_order_relaxed) + 1,
        .ns = sg_clock_ns(),
        .thread = syscall(SYS_gettid),
    };
}

/* Work of the driver's that failed: from an error that stays, nothing more is asked. */
static bool went_well(CUresult result)
{
    if (sg_driver_is_sticky(result))
        atomic_store(&sg_check_goes_on, false);
    if (result != CUDA_SUCCESS)
        count_left_out(LEFT_OUT_DRIVER);
    return result == CUDA_SUCCESS;
}

/* The lane of the current context, which is `context`, with no capture active and none to begin until leave(). NULL, and
   no leave(): there is none. */
static struct sg_lane *enter_lane(CUcontext context)
{
    sg_captures_exclude();
    bool capturing = sg_captures_active();
    struct sg_lane *lane = capturing || sg_contexts_green(context) ? NULL : sg_lane_of(context, true);
    if (lane) {
        sg_annotate_upkeep(true);
        return lane;
    }
    sg_captures_allow();
    count_left_out(capturing ? LEFT_OUT_CAPTURE : LEFT_OUT_CONTEXT);
    return NULL;
}

/* After enter_lane() that has found one. */
static void leave_lane(void)
{
    sg_annotate_upkeep(false);
    sg_captures_allow();
}

/* True if a stream is one of `context`, and may be given work by this thread. */
static bool stream_is_usable(struct sg_core *core, int device, sg_slot slot, CUcontext context, CUstream *ret)
{
    struct sg_stream_id id;
    struct sg_tracked_stream own;
    if (!sg_core_slot_stream(core, device, slot, &id) || id.context != context || id.flags & SG_STREAM_UNFENCEABLE)
        return false;
    *ret = id.handle;
    return !id.per_thread || (sg_streams_find(core, CU_STREAM_PER_THREAD, true, &own) && own.slot == slot);
}

/* Reading back. */

enum { KEPT = 64 };

/* Samples on their way out: a batch that is being filled. `kept_all`: any stream may use the memory once this is
   over. Batches are kept then until the host has waited for them. */
struct reader {
    struct sg_lane *lane;
    struct sg_batch *batch;
    CUstream stream;
    struct sg_check_block now;
    bool kept_all, gave_up;
    CUdeviceptr spared; /* SG_STAMPS bytes that are not read; 0: none */
    unsigned kept;
    struct sg_batch *keep[KEPT];
};

/* Sends the batch, if there is one: an event goes behind its copies. */
static void reader_send(struct reader *reader)
{
    struct sg_batch *batch = reader->batch;
    reader->batch = NULL;
    if (!batch)
        return;
    if (!reader->kept_all)
        (void)sg_batch_send(batch, reader->stream);
    else if (sg_batch_keep(batch, reader->stream))
        reader->keep[reader->kept++] = batch;
    else
        reader->gave_up = true;
}

/* Waits for what was kept, in the order in which it was copied. The caller has left the lane. */
static void reader_settle(struct reader *reader)
{
    for (unsigned i = 0; i < reader->kept; i++)
        reader->gave_up |= !sg_batch_settle(reader->keep[i], driver, sg_check_compare);
    reader->kept = 0;
}

/* An empty batch. A thorough run waits for one, not for ever. */
static bool reader_begin(struct reader *reader)
{
    uint64_t until = is_thorough() && !sg_samples_are_stuck() ? sg_clock_ns() + PATIENCE_NS : 0;
    if (reader->kept == KEPT)
        return false;
    reader->batch = sg_batch_begin(reader->lane);
    while (!reader->batch && until && sg_clock_ns() < until) {
        sg_samples_poll(driver, /* all */ true, sg_check_compare);
        sg_rest(20000);
        reader->batch = sg_batch_begin(reader->lane);
    }
    if (!reader->batch)
        sg_samples_stuck();
    else
        reader->batch->now = reader->now;
    return reader->batch != NULL;
}

/* Adds a sample to the batch, or to the next one where that is full. A sample for which there is no room is left out. The
   reference to its block is the sample's own. */
static void reader_add(struct reader *reader, struct sg_sample sample)
{
    uint64_t bytes = (uint64_t)sample.bytes * sample.rows;
    if (reader->batch && (reader->batch->count == SG_BATCH_SAMPLES || bytes > SG_BATCH_BYTES - reader->batch->used))
        reader_send(reader);
    if (!reader->batch && !reader_begin(reader)) {
        count_left_out(LEFT_OUT_RING);
        return;
    }
    sg_process_lock(SG_LOCK_CHECK);
    sample.freed->refs++;
    sg_process_unlock(SG_LOCK_CHECK);
    if (sg_batch_read(reader->batch, &sample, reader->stream))
        return;
    count_left_out(LEFT_OUT_DRIVER);
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_unref(&sg_check_shadow, sample.freed);
    sg_process_unlock(SG_LOCK_CHECK);
}

/* Reads bytes of a part, in as many samples as they need. */
static void read_plain(struct reader *reader, const struct sg_part *part, uint64_t offset, uint64_t bytes)
{
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = bytes - done < SG_BATCH_BYTES ? bytes - done : SG_BATCH_BYTES;
        reader_add(reader, (struct sg_sample){.freed = part->freed, .offset = offset + done,
            .address = part->address + (offset + done - part->offset), .bytes = (uint32_t)piece, .rows = 1});
    }
}

/* Offset of the first byte that is spared, as the part counts; one behind all where none is. */
static uint64_t spared_offset(const struct reader *reader, const struct sg_part *part)
{
    return reader->spared >= part->address && reader->spared < part->address + part->bytes
        ? reader->spared - part->address + part->offset
        : UINT64_MAX - SG_STAMPS;
}

/* The same without the bytes that are spared: two rows where those lie between. */
static void read_bytes(struct reader *reader, const struct sg_part *part, uint64_t offset, uint64_t bytes)
{
    uint64_t spared = spared_offset(reader, part), end = offset + bytes, first = end < spared ? end : spared;
    if (offset < first)
        read_plain(reader, part, offset, first - offset);
    uint64_t next = offset > spared + SG_STAMPS ? offset : spared + SG_STAMPS;
    if (next < end)
        read_plain(reader, part, next, end - next);
}

/* The windows that lie in [from, to), by one copy. */
static void read_windows(struct reader *reader, const struct sg_part *part, uint64_t from, uint64_t to)
{
    const struct sg_fill *fill = &part->freed->fill;
    uint64_t spared = spared_offset(reader, part);
    if (from == 0 && to >= SAMPLE_BYTES)
        read_bytes(reader, part, 0, SAMPLE_BYTES);
    uint64_t row = from <= fill->first ? 0 : (from - fill->first + fill->pitch - 1) / fill->pitch, end = row;
    while (end < fill->windows && fill->first + end * fill->pitch + SAMPLE_BYTES <= (to < spared ? to : spared))
        end++;
    if (end == row)
        return;
    uint64_t offset = fill->first + row * fill->pitch;
    reader_add(reader, (struct sg_sample){.freed = part->freed, .offset = offset,
        .address = part->address + (offset - part->offset), .bytes = SAMPLE_BYTES, .rows = (uint32_t)(end - row),
        .pitch = fill->pitch});
}

/* Reads a part back. A small one is read whole, and of one that has windows the windows are. Three samples are read of
   any other: its begin, its end, and a place between that the word of the free chooses.

   For example, 40,000 bytes of a block of 60,000 serve again. Samples of 512 bytes are read at 0, at a multiple of 4
   below 39,488, and at 39,488. */
static void read_part(struct reader *reader, const struct sg_part *part)
{
    const struct sg_fill *fill = &part->freed->fill;
    uint64_t from = part->offset, to = from + part->bytes, tail = fill->has_tail ? fill->room - SG_TAIL : to;
    if (fill->has_body && fill->whole && (part->bytes <= SG_BATCH_BYTES || is_thorough())) {
        read_bytes(reader, part, from, part->bytes);
        return;
    }
    if (fill->has_tail && from <= tail && to >= fill->room)
        read_bytes(reader, part, tail, SG_TAIL);
    to = to < tail ? to : tail;
    if (!fill->has_body || to <= from)
        return;
    if (!fill->whole) {
        read_windows(reader, part, from, to);
        return;
    }
    uint64_t between = (to - from - SAMPLE_BYTES) / 4;
    read_bytes(reader, part, from, SAMPLE_BYTES);
    read_bytes(reader, part, from + fill->word % between * 4, SAMPLE_BYTES);
    read_bytes(reader, part, to - SAMPLE_BYTES, SAMPLE_BYTES);
}

/* Allocations. */

size_t sg_check_room(size_t bytes)
{
    return bytes > SIZE_MAX / 2 ? bytes : ((bytes + SG_TAIL - 1) & ~(size_t)(SG_TAIL - 1)) + SG_TAIL;
}

size_t sg_check_bytes(CUdeviceptr base, size_t room)
{
    sg_process_lock(SG_LOCK_CHECK);
    const struct sg_freed *block = (const struct sg_freed *)(uintptr_t)sg_idmap_get(&live, base);
    size_t bytes = block ? block->bytes : room;
    sg_process_unlock(SG_LOCK_CHECK);
    return bytes;
}

/* Takes a block out of the table of live ones: whoever frees it has it alone. NULL: it is not there, or another thread
   has taken it. The table's reference is the caller's then. */
static struct sg_freed *live_take(CUdeviceptr address)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = (struct sg_freed *)(uintptr_t)sg_idmap_take(&live, address);
    sg_process_unlock(SG_LOCK_CHECK);
    return block;
}

/* Puts a block into that table, with the caller's reference. Without host memory it is forgotten. */
static void live_put(struct sg_freed *block)
{
    sg_process_lock(SG_LOCK_CHECK);
    if (!sg_idmap_put(&live, block->base, (uintptr_t)block))
        sg_shadow_unref(&sg_check_shadow, block);
    sg_process_unlock(SG_LOCK_CHECK);
}

/* Gives a reference back. */
static void block_drop(struct sg_freed *block)
{
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_unref(&sg_check_shadow, block);
    sg_process_unlock(SG_LOCK_CHECK);
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
    if (tag->slot ? !stream_is_usable(core, device, tag->slot, tag->context, ret)
                  : sg_streams_context_of(*ret) != tag->context)
        return false;
    *ret_wait = !tag->slot || !sg_core_slot_is_fresh(core, device, tag->slot);
    return !*ret_wait || sg_real()->cuStreamQuery(*ret) == CUDA_SUCCESS;
}

/* The canary: from the end of what was asked for up to the stamps. */
static uint32_t canary_bytes(const struct sg_freed *block)
{
    return (uint32_t)(block->fill.room - (SG_TAIL - SG_TAIL_STAMPS) - block->bytes);
}

/* Canary bytes behind what was asked for. */
static bool write_canary(const struct sg_freed *block, CUstream stream)
{
    return went_well(sg_real()->cuMemsetD8Async(block->base + block->bytes, SG_CANARY_BYTE,
        canary_bytes(block), stream));
}

/* Looks at a block that is handed out. The parts of freed blocks in it are read on the stream that gets it, then its canary
   is written there. A block that is for no stream may be used on any at once: the host waits for these copies alone. */
static void look_at_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    struct sg_freed *block, const struct sg_part *part, size_t count)
{
    struct sg_lane *lane = enter_lane(tag->context);
    if (!lane)
        return;
    struct reader reader = {.lane = lane, .now = {block->base, block->bytes, block->allocated}};
    if (block->fill.has_tail)
        reader.spared = block->base + sg_fill_stamp_at(&block->fill, 0);
    if (stream_of_allocation(core, lane, request, tag, device, &reader.stream, &reader.kept_all)) {
        for (size_t i = 0; i < count; i++)
            read_part(&reader, &part[i]);
        if (parts & SG_CHECK_CANARY && block->fill.has_tail)
            block->canary = write_canary(block, reader.stream);
        if (reader.kept_all && block->canary && !reader.batch && !reader_begin(&reader))
            reader.gave_up = true; /* nothing shows when it is written */
        reader_send(&reader);
        if (request->has_stream && tag->slot)
            sg_core_slot_upkeep(core, device, tag->slot);
    } else {
        count_left_out(LEFT_OUT_STREAM);
    }
    leave_lane();
    reader_settle(&reader);
    if (reader.gave_up) {
        block->canary = false;
        block->unsettled = true;
    }
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

void sg_check_reused(CUdeviceptr address, size_t bytes)
{
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = (struct sg_freed *)(uintptr_t)sg_idmap_get(&live, address);
    if (block) {
        block->bytes = bytes;
        block->canary = false;
    }
    sg_process_unlock(SG_LOCK_CHECK);
}

void sg_check_given(struct sg_core *core, int device, const struct sg_request *request, const struct sg_tag *tag,
    CUdeviceptr address, size_t bytes, size_t room)
{
    struct sg_part part[PARTS];
    struct sg_check_note note = note_now(tag);
    sg_process_lock(SG_LOCK_CHECK);
    size_t most = is_thorough() ? PARTS : PARTS_USUAL;
    size_t count = sg_shadow_take(&sg_check_shadow, address, room, part, most);
    struct sg_freed *block = sg_shadow_freed(&sg_check_shadow);
    sg_process_unlock(SG_LOCK_CHECK);
    if (count > most) {
        count_left_out(LEFT_OUT_MANY);
        count = most;
    }
    if (block) {
        block->device = device;
        block->base = address;
        block->bytes = bytes;
        block->allocated = note;
        block->fill.room = room;
        block->fill.has_tail = room > bytes;
        block->fill.place = stamps_place(address, room, part, count);
        look_at_given(core, device, request, tag, block, part, count);
        live_put(block);
    }
    for (size_t i = 0; i < count; i++)
        block_drop(part[i].freed);
    sg_samples_poll(driver, /* all */ false, sg_check_compare);
}

/* Frees. */

/* Fills a block on a stream: whole by one call, or its windows and its tail by three. False: the driver refused some of
   it, so nothing is known of these bytes. */
static bool fill_block(const struct sg_freed *block, CUstream stream)
{
    const struct sg_real *real = sg_real();
    const struct sg_fill *fill = &block->fill;
    uint64_t bytes = fill->room;
    bool well;
    if (fill->whole) {
        well = went_well(real->cuMemsetD32Async(block->base, fill->word, fill->room / 4, stream));
    } else {
        bytes = (uint64_t)SG_WINDOW * (fill->windows + 1);
        well = went_well(real->cuMemsetD32Async(block->base, fill->word, SG_WINDOW / 4, stream)) &&
            went_well(real->cuMemsetD2D32Async(block->base + fill->first, fill->pitch, fill->word, SG_WINDOW / 4,
                fill->windows, stream));
        if (well && fill->has_tail) {
            bytes += SG_TAIL;
            well = went_well(real->cuMemsetD32Async(block->base + fill->room - SG_TAIL, fill->word, SG_TAIL / 4, stream));
        }
    }
    if (well)
        atomic_fetch_add_explicit(&filled_bytes, bytes, memory_order_relaxed);
    return well;
}

/* Reads the canary on the stream that then fills the block. */
static void read_canary(struct reader *reader, struct sg_freed *block)
{
    reader_add(reader, (struct sg_sample){.freed = block, .canary = true, .offset = block->bytes,
        .address = block->base + block->bytes, .bytes = canary_bytes(block), .rows = 1});
}

/* Each other user stamps the tail in its own order, and is recorded, so that the free waits for the stamp. One that is not
   known to come after the allocation need not come after the fill of the block before either, so it writes none. */
static bool stamp_by_others(struct sg_core *core, struct sg_freed *block, CUcontext context, uint64_t others)
{
    for (; others; others &= others - 1) {
        sg_slot slot = (sg_slot)__builtin_ctzll(others);
        CUstream stream;
        if (!stream_is_usable(core, block->device, slot, context, &stream) ||
            !went_well(sg_real()->cuMemsetD16Async(block->base + sg_fill_stamp_at(&block->fill, slot),
                sg_pattern_stamp(block->fill.word, slot), 1, stream))) {
            count_left_out(LEFT_OUT_STREAM);
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
    const struct sg_free_users *users, struct reader *reader, bool canary)
{
    bool alone = !users->others, well = true, fresh = sg_core_slot_is_fresh(core, block->device, users->own);
    if (!stream_is_usable(core, block->device, users->own, tag->context, &reader->stream) ||
        (!alone && !block->fill.has_tail) || (!fresh && sg_real()->cuStreamQuery(reader->stream) != CUDA_SUCCESS)) {
        count_left_out(LEFT_OUT_STREAM);
        return false;
    }
    reader->kept_all = !fresh;
    if (canary)
        read_canary(reader, block);
    block->freed.stream = reader->stream;
    block->freed.has_stream = true;
    block->order = alone ? "in the order of its stream" : "in the order of its stream, after others that used it";
    if (parts & SG_CHECK_FILL && alone) {
        well = fill_block(block, reader->stream);
    } else if (parts & SG_CHECK_FILL) {
        block->fill.has_body = false;
        well = went_well(sg_real()->cuMemsetD32Async(block->base + block->fill.room - SG_TAIL, block->fill.word,
                   SG_TAIL_STAMPS / 4, reader->stream)) &&
            stamp_by_others(core, block, tag->context, users->after_alloc);
    }
    if (!fresh && !reader->batch && !reader_begin(reader))
        reader->gave_up = true;
    reader_send(reader);
    sg_core_slot_upkeep(core, block->device, users->own);
    if (fresh && !sg_core_slot_is_fresh(core, block->device, users->own))
        tag->sync = SG_FREE_SYNC_EVENT; /* an event was recorded meanwhile, perhaps before the fill */
    return well && parts & SG_CHECK_FILL;
}

/* Fills a block by a stream of ours, after all work that there is. The free then waits for that stream too. */
static bool fill_after_all(struct sg_freed *block, struct reader *reader, bool canary)
{
    if (!sg_lane_fills_after_all(reader->lane, driver)) {
        count_left_out(LEFT_OUT_DRIVER);
        return false;
    }
    reader->stream = sg_lane_fills(reader->lane);
    if (canary)
        read_canary(reader, block);
    reader_send(reader);
    block->order = "after all work";
    return parts & SG_CHECK_FILL && fill_block(block, reader->stream);
}

/* The work of `check` on a block that is about to be freed. True: it is filled. */
static bool look_at_free(struct sg_core *core, struct sg_freed *block, struct sg_tag *tag)
{
    struct sg_free_users users;
    bool canary = block->canary, done = false;
    if (block->unsettled) /* the core is to wait for our work too */
        tag->sync = tag->sync == SG_FREE_SYNC_STRICT ? tag->sync : SG_FREE_SYNC_EVENT;
    if (tag->sync == SG_FREE_SYNC_COMPLETE) {
        count_left_out(LEFT_OUT_COMPLETE);
        return false;
    }
    struct sg_lane *lane = enter_lane(tag->context);
    if (!lane)
        return false;
    struct reader reader = {.lane = lane, .now = {block->base, 0, block->freed}};
    uint64_t room = block->fill.has_tail ? block->fill.room : block->fill.room & ~(uint64_t)3;
    sg_fill_plan(room, block->fill.has_tail, is_thorough(), block->freed.event, &block->fill);
    if (!sg_core_free_users(core, block->base, tag, &users))
        count_left_out(LEFT_OUT_DRIVER);
    else if (users.in_order)
        done = fill_in_order(core, block, tag, &users, &reader, canary);
    else if (sg_contexts_only() != tag->context)
        count_left_out(LEFT_OUT_CONTEXT);
    else
        done = fill_after_all(block, &reader, canary);
    if (tag->sync == SG_FREE_SYNC_STREAM && !users.in_order)
        tag->sync = SG_FREE_SYNC_EVENT; /* so that it covers the fill whatever has become known since */
    leave_lane();
    reader_settle(&reader);
    if (reader.gave_up)
        tag->sync = SG_FREE_SYNC_EVENT;
    return done;
}

struct sg_freed *sg_check_freeing(struct sg_core *core, CUdeviceptr address, struct sg_tag *tag)
{
    struct sg_freed *block = live_take(address);
    if (!block)
        return NULL;
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    block->freed = note_now(tag);
    atomic_fetch_add_explicit(&frees, 1, memory_order_relaxed);
    bool filled = look_at_free(core, block, tag);
    if (filled) {
        sg_process_lock(SG_LOCK_CHECK);
        sg_shadow_put(&sg_check_shadow, block);
        sg_process_unlock(SG_LOCK_CHECK);
    }
    sg_samples_poll(driver, /* all */ false, sg_check_compare);
    return block;
}

/* Ends what sg_check_freeing() began. After a free the shadow has the references to the block, as far as it was filled.

   A free that did not happen leaves the block live, without a canary and with nothing known of its bytes. */
void sg_check_freed(struct sg_freed *block, bool done)
{
    if (!block)
        return;
    if (done) {
        block_drop(block);
        return;
    }
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_part part;
    if (sg_shadow_take(&sg_check_shadow, block->base, block->fill.room, &part, 1))
        sg_shadow_unref(&sg_check_shadow, part.freed);
    sg_process_unlock(SG_LOCK_CHECK);
    block->fill = (struct sg_fill){.room = block->fill.room, .has_tail = block->fill.has_tail};
    block->freed = (struct sg_check_note){0};
    live_put(block);
}

/* The block that is, or was, at an address, with a reference; NULL: none is known. *ret_live: it is. */
static struct sg_freed *block_at(struct sg_core *core, CUdeviceptr address, bool *ret_live)
{
    struct sg_block_info info;
    CUresult found = sg_core_block(core, address, &info);
    sg_process_lock(SG_LOCK_CHECK);
    struct sg_freed *block = NULL;
    *ret_live = found == CUDA_SUCCESS;
    if (*ret_live)
        block = (struct sg_freed *)(uintptr_t)sg_idmap_get(&live, info.base);
    if (block)
        block->refs++;
    else
        block = sg_shadow_at(&sg_check_shadow, address);
    sg_process_unlock(SG_LOCK_CHECK);
    return block;
}

void sg_check_refused(struct sg_core *core, CUdeviceptr address, const struct sg_tag *tag)
{
    bool is_live;
    struct sg_freed *block = block_at(core, address, &is_live);
    if (sg_sites_on)
        sg_sites_note(sg_this_thread());
    const struct sg_check_block now = {.address = address, .note = note_now(tag)};
    const struct sg_finding finding = {
        .kind = block && !is_live && block->base == address ? SG_FINDING_DOUBLE_FREE : SG_FINDING_WRONG_FREE,
        .block = block,
        .now = &now,
        .address = address,
        .offset = block ? address - block->base : 0,
    };
    sg_findings_add(&finding);
    if (block)
        block_drop(block);
}

/* Ends. */

/* The counts of what was not looked at, as one text: "3 during captures, 12 beside other contexts". */

static void write_left_out(char *text, size_t size)
{
    static const char *const words[] = {
#define LEFT_OUT(name, why) why,
        LEFT_OUT_REASONS(LEFT_OUT)
#undef LEFT_OUT
    };
    size_t length = 0;
    *text = '\0';
    for (int i = 0; i < LEFT_OUT_COUNT && length < size; i++) {
        uint64_t count = atomic_load(&left_out[i]);
        if (count)
            length += (size_t)snprintf(text + length, size - length, "%s%" PRIu64 " %s", length ? ", " : "", count, words[i]);
    }
}

/* The process ends: what is out is waited for while the driver still answers. A handler of exit() may call exit() with
   another status in glibc, and those that were registered earlier run after it. */
static void check_finish(void)
{
    char text[512];
    if (!sg_process_core() || atomic_exchange(&ended, true))
        return;
    struct sg_core *core = sg_enter();
    if (core) {
        sg_samples_finish(driver, NULL, END_NS, sg_check_compare);
        sg_leave();
    }
    atomic_store(&sg_check_goes_on, false);
    write_left_out(text, sizeof text);
    sg_findings_end(atomic_load(&frees), atomic_load(&filled_bytes), sg_check_compared(), text);
    if (parts & SG_CHECK_FAIL && sg_findings_count())
        exit(FAILED_STATUS);
}

void sg_check_open(const struct sg_conf *conf, struct sg_driver *core_driver)
{
    parts = conf->check;
    driver = core_driver;
    if (!parts)
        return;
    if (!sg_shadow_begin(&sg_check_shadow) || !sg_idmap_init(&live)) {
        sg_log_line("check: no host memory, so nothing is looked at");
        return;
    }
    sg_watch_driver(core_driver);
    sg_findings_open(parts & SG_CHECK_JSON);
    atomic_store(&sg_check_goes_on, true);
    (void)atexit(check_finish);
}

void sg_check_context_ends(CUcontext context)
{
    struct sg_core *core = sg_process_core();
    if (core && context)
        sg_samples_finish(driver, context, END_NS, sg_check_compare);
}

void sg_check_context_gone(CUcontext context)
{
    for (unsigned lost = sg_lane_gone(context); lost; lost--)
        count_left_out(LEFT_OUT_LOST);
}

void sg_check_forget(void)
{
    atomic_store(&sg_check_goes_on, false);
    atomic_store(&ended, true);
}
