/* Numbers beyond the table are of a later version, and count as no tag. */
#include "analysis/tags.h"

#include <string.h>

/* The row of a number; that of no tag where there is none. */
static struct sg_tag_row *tags_row(struct sg_tag_book *book, uint64_t tag)
{
    return &book->row[tag < SG_TAG_BOOK_TAGS ? tag : 0];
}

/* Adds one piece of a name. */
static void tags_define(struct sg_tag_book *book, const struct segalloc_trace_record *record)
{
    struct sg_tag_row *row = tags_row(book, record->stream);
    size_t length = record->flags & SEGALLOC_FLAG_FIRST ? 0 : strnlen(row->name, sizeof row->name);
    char piece[2 * sizeof record->id];
    memcpy(piece, &record->id, sizeof record->id);
    memcpy(piece + sizeof record->id, &record->size, sizeof record->size);
    size_t left = sizeof row->name - 1 - length, more = strnlen(piece, sizeof piece);
    more = more < left ? more : left;
    memcpy(row->name + length, piece, more);
    row->name[length + more] = '\0';
    row->discard = record->flags & SEGALLOC_FLAG_NATIVE;
}

static void tags_set_pages(struct sg_tag_row *row, uint32_t device, uint64_t bytes)
{
    row->reserved = row->reserved - row->pages[device] + bytes;
    row->pages[device] = bytes;
    row->peak_reserved = row->reserved > row->peak_reserved ? row->reserved : row->peak_reserved;
}

/* The end of a pause or a resume: 0 where nothing has changed. */
static int64_t tags_end_order(struct sg_tag_book *book, uint64_t outcome)
{
    struct sg_tag_row *row = tags_row(book, book->order.tag);
    uint64_t bit = UINT64_C(1) << book->order.device, saved = 0;
    bool pause = book->order.pause, changes = outcome && !!(row->paused & bit) != pause;
    book->order.tag = 0;
    if (!changes)
        return 0;
    row->paused ^= bit;
    row->pauses += pause;
    row->resumes += !pause;
    for (uint32_t device = 0; device < SEGALLOC_TRACE_DEVICES && !row->discard; device++)
        saved += row->paused >> device & 1 ? row->live[device] : 0;
    row->peak_saved = saved > row->peak_saved ? saved : row->peak_saved;
    int64_t live = (int64_t)row->live[__builtin_ctzll(bit)];
    return pause ? -live : live;
}

int64_t sg_tag_book_take(struct sg_tag_book *book, const struct segalloc_trace_record *record, uint32_t device)
{
    device %= SEGALLOC_TRACE_DEVICES;
    switch (record->kind) {
    case SEGALLOC_RECORD_DEFINE_TAG:
        tags_define(book, record);
        return 0;
    case SEGALLOC_RECORD_TAG:
        book->next[record->thread] = record->id < SG_TAG_BOOK_TAGS ? (uint8_t)record->id : 0;
        return 0;
    case SEGALLOC_RECORD_TAG_PAGES:
        tags_set_pages(tags_row(book, record->id), device, record->size);
        return 0;
    case SEGALLOC_RECORD_PAUSE:
    case SEGALLOC_RECORD_RESUME:
        book->order.tag = record->id < SG_TAG_BOOK_TAGS ? (uint8_t)record->id : 0;
        book->order.device = (uint8_t)device;
        book->order.thread = record->thread;
        book->order.pause = record->kind == SEGALLOC_RECORD_PAUSE;
        return 0;
    case SEGALLOC_RECORD_TURN:
        return record->id == SEGALLOC_TURN_PAUSE_END && book->order.tag && book->order.thread == record->thread
                   ? tags_end_order(book, record->size)
                   : 0;
    default:
        return 0;
    }
}

uint8_t sg_tag_book_allocate(struct sg_tag_book *book, const struct segalloc_trace_record *record, uint32_t device)
{
    uint8_t tag = book->next[record->thread];
    struct sg_tag_row *row = tags_row(book, tag);
    book->next[record->thread] = 0;
    if (!tag)
        return 0;
    row->live[device % SEGALLOC_TRACE_DEVICES] += record->size;
    row->requested += record->size;
    row->peak_requested = row->requested > row->peak_requested ? row->requested : row->peak_requested;
    return tag;
}

bool sg_tag_book_free(struct sg_tag_book *book, uint8_t tag, uint32_t device, uint64_t size)
{
    struct sg_tag_row *row = tags_row(book, tag);
    device %= SEGALLOC_TRACE_DEVICES;
    if (!tag)
        return true;
    row->live[device] -= size;
    row->requested -= size;
    return !(row->paused >> device & 1);
}
