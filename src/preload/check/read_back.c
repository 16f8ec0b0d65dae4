/* A copy that crosses the bytes that are spared is two copies, one on each side of them. */
#include "check/read_back.h"

#include "base/clock.h"
#include "base/rest.h"
#include "check/compare.h"
#include "check/state.h"
#include "process/locks.h"

enum { SAMPLE_BYTES = 512 };

/* A thorough run waits so long for memory of the ring. It comes back once the stream's work in front of the copies is done, such as the
   fill of gigabytes. */
static const uint64_t PATIENCE_NS = 10000000000u;

void sg_reader_send(struct sg_reader *reader)
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

void sg_reader_settle(struct sg_reader *reader)
{
    for (unsigned i = 0; i < reader->kept; i++)
        reader->gave_up |= !sg_batch_settle(reader->keep[i], sg_check_driver, sg_check_compare);
    reader->kept = 0;
}

/* Where a wait was in vain nobody waits before something has come back. This looks whether it has. One block is thousands of batches, so
   without that look all the rest of it would be left out. */
bool sg_reader_begin(struct sg_reader *reader)
{
    if (sg_check_thorough() && sg_samples_are_stuck())
        sg_samples_poll(sg_check_driver, /* all */ false, sg_check_compare);
    uint64_t until = sg_check_thorough() && !sg_samples_are_stuck() ? sg_clock_ns() + PATIENCE_NS : 0;
    if (reader->kept == SG_READER_KEPT && until)
        sg_reader_settle(reader);
    if (reader->kept == SG_READER_KEPT)
        return false;
    reader->batch = sg_batch_begin(reader->lane);
    while (!reader->batch && until && sg_clock_ns() < until) {
        sg_samples_poll(sg_check_driver, /* all */ true, sg_check_compare);
        sg_rest(20000);
        reader->batch = sg_batch_begin(reader->lane);
    }
    if (!reader->batch)
        sg_samples_stuck();
    else
        reader->batch->now = reader->now;
    return reader->batch != NULL;
}

void sg_reader_add(struct sg_reader *reader, struct sg_sample sample)
{
    uint64_t bytes = (uint64_t)sample.bytes * sample.rows;
    if (reader->batch && (reader->batch->count == SG_BATCH_SAMPLES || bytes > SG_BATCH_BYTES - reader->batch->used))
        sg_reader_send(reader);
    if (!reader->batch && !sg_reader_begin(reader)) {
        sg_check_left_out(SG_LEFT_OUT_RING);
        return;
    }
    sg_process_lock(SG_LOCK_CHECK);
    sample.freed->refs++;
    sg_process_unlock(SG_LOCK_CHECK);
    if (sg_batch_read(reader->batch, &sample, reader->stream))
        return;
    sg_check_left_out(SG_LEFT_OUT_DRIVER);
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_unref(&sg_check_shadow, sample.freed);
    sg_process_unlock(SG_LOCK_CHECK);
}

void sg_reader_words(struct sg_reader *reader, struct sg_freed *freed)
{
    sg_process_lock(SG_LOCK_CHECK);
    unsigned count = sg_marks_words(&freed->marks, reader->lane);
    freed->refs++;
    sg_process_unlock(SG_LOCK_CHECK);
    if (!reader->batch && !sg_reader_begin(reader)) {
        sg_check_left_out(SG_LEFT_OUT_RING);
    } else if (sg_batch_read_words(reader->batch, freed, count, reader->stream)) {
        sg_reader_send(reader);
        return;
    } else {
        sg_reader_send(reader);
        sg_check_left_out(SG_LEFT_OUT_DRIVER);
    }
    sg_process_lock(SG_LOCK_CHECK);
    sg_shadow_unref(&sg_check_shadow, freed);
    sg_process_unlock(SG_LOCK_CHECK);
}

/* Reads bytes of a part, in as many samples as they need. */
static void read_plain(struct sg_reader *reader, const struct sg_part *part, uint64_t offset, uint64_t bytes)
{
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = bytes - done < SG_BATCH_BYTES ? bytes - done : SG_BATCH_BYTES;
        sg_reader_add(reader, (struct sg_sample){.freed = part->freed,
                                  .offset = offset + done,
                                  .address = part->address + (offset + done - part->offset),
                                  .bytes = (uint32_t)piece,
                                  .rows = 1});
    }
}

/* Offset of the first byte that is spared, as the part counts; one behind all where none is. */
static uint64_t spared_offset(const struct sg_reader *reader, const struct sg_part *part)
{
    return reader->spared >= part->address && reader->spared < part->address + part->bytes
               ? reader->spared - part->address + part->offset
               : UINT64_MAX - SG_STAMPS;
}

/* The same without the bytes that are spared: two rows where those lie between. */
static void read_bytes(struct sg_reader *reader, const struct sg_part *part, uint64_t offset, uint64_t bytes)
{
    uint64_t spared = spared_offset(reader, part), end = offset + bytes, first = end < spared ? end : spared;
    if (offset < first)
        read_plain(reader, part, offset, first - offset);
    uint64_t next = offset > spared + SG_STAMPS ? offset : spared + SG_STAMPS;
    if (next < end)
        read_plain(reader, part, next, end - next);
}

/* The beginning of what a window has in [from, to). */
static void read_window(struct sg_reader *reader, const struct sg_part *part, uint64_t window, uint64_t from,
    uint64_t to)
{
    uint64_t begin = window > from ? window : from, end = window + SG_WINDOW < to ? window + SG_WINDOW : to;
    if (begin < end)
        read_bytes(reader, part, begin, end - begin < SAMPLE_BYTES ? end - begin : SAMPLE_BYTES);
}

/* The windows that lie in [from, to), by one copy. The first one, and those that are cut by an end, have a copy each. */
static void read_windows(struct sg_reader *reader, const struct sg_part *part, uint64_t from, uint64_t to)
{
    const struct sg_fill *fill = &part->freed->fill;
    uint64_t spared = spared_offset(reader, part);
    read_window(reader, part, 0, from, to);
    uint64_t row = from <= fill->first ? 0 : (from - fill->first + fill->pitch - 1) / fill->pitch, end = row;
    if (row && row <= fill->windows)
        read_window(reader, part, fill->first + (row - 1) * fill->pitch, from, to);
    while (end < fill->windows && fill->first + end * fill->pitch + SAMPLE_BYTES <= (to < spared ? to : spared))
        end++;
    if (end < fill->windows)
        read_window(reader, part, fill->first + end * fill->pitch, from, to);
    if (end == row)
        return;
    uint64_t offset = fill->first + row * fill->pitch;
    sg_reader_add(reader, (struct sg_sample){.freed = part->freed,
                              .offset = offset,
                              .address = part->address + (offset - part->offset),
                              .bytes = SAMPLE_BYTES,
                              .rows = (uint32_t)(end - row),
                              .pitch = fill->pitch});
}

/* The end of a block, if the part has it: the tail, by one copy with the end of the last window. A part that is cut off within
   that window has some of it. */
static void read_end(struct sg_reader *reader, const struct sg_part *part, uint64_t from, uint64_t to)
{
    const struct sg_fill *fill = &part->freed->fill;
    uint64_t body = sg_fill_body(fill), begin = body;
    bool windows = fill->has_body && !fill->whole;
    if (windows)
        begin = from > body - SAMPLE_BYTES ? from : body - SAMPLE_BYTES;
    if (from <= body && to >= fill->room)
        read_bytes(reader, part, begin, fill->room - begin);
    else if (windows)
        read_window(reader, part, body - SG_WINDOW, from, to < body ? to : body);
}

void sg_reader_part(struct sg_reader *reader, const struct sg_part *part)
{
    const struct sg_fill *fill = &part->freed->fill;
    uint64_t from = part->offset, to = from + part->bytes, body = sg_fill_body(fill);
    if (fill->has_body && fill->whole && (part->bytes <= SG_BATCH_BYTES || sg_check_thorough())) {
        read_bytes(reader, part, from, part->bytes);
        return;
    }
    read_end(reader, part, from, to);
    to = to < body ? to : body;
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
