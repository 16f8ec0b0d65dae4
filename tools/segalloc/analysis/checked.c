#include "analysis/checked.h"

#include <string.h>

static void note_set_place(struct sg_checked_note *note, const struct segalloc_trace_record *record)
{
    note->event = record->id;
    note->site = (uint32_t)(record->size >> 32);
    note->phase = (uint32_t)record->size;
}

static void note_set_by(struct sg_checked_note *note, const struct segalloc_trace_record *record)
{
    note->stream = record->id;
    note->thread = (uint32_t)record->size;
    note->has_stream = record->size >> 32 & 1;
}

/* Adds 16 characters. Those that would end a line or change a terminal become question marks. */
static void add_order(char order[SG_CHECKED_ORDER], const struct segalloc_trace_record *record)
{
    char text[sizeof record->id + sizeof record->size];
    size_t used = strlen(order);
    memcpy(text, &record->id, sizeof record->id);
    memcpy(text + sizeof record->id, &record->size, sizeof record->size);
    for (size_t i = 0; i < sizeof text && text[i] && used + 1 < SG_CHECKED_ORDER; i++)
        order[used++] = (unsigned char)text[i] < ' ' || (unsigned char)text[i] >= 0x7f ? '?' : text[i];
    order[used] = '\0';
}

static void take_field(struct sg_checked_finding *finding, const struct segalloc_trace_record *record)
{
    switch (record->stream) {
    case SEGALLOC_FINDING_KIND:
        finding->has_kind = true;
        finding->kind = record->id;
        finding->device = (uint32_t)record->size;
        break;
    case SEGALLOC_FINDING_BLOCK:
        finding->has_block = true;
        finding->block = record->id;
        finding->block_bytes = record->size;
        break;
    case SEGALLOC_FINDING_NOW:
        finding->has_now = true;
        finding->now = record->id;
        finding->now_bytes = record->size;
        break;
    case SEGALLOC_FINDING_WHERE:
        finding->where = record->id;
        finding->offset = record->size;
        break;
    case SEGALLOC_FINDING_BYTES:
        finding->differ = record->id;
        finding->compared = record->size;
        break;
    case SEGALLOC_FINDING_LAST:
        finding->last = record->id;
        finding->moved = record->size & 1;
        break;
    case SEGALLOC_FINDING_WORDS:
        finding->written = (uint32_t)(record->id >> 32);
        finding->found = (uint32_t)record->id;
        finding->missing = record->size;
        break;
    case SEGALLOC_FINDING_ALLOCATED:
        note_set_place(&finding->allocated, record);
        break;
    case SEGALLOC_FINDING_ALLOCATED_BY:
        note_set_by(&finding->allocated, record);
        break;
    case SEGALLOC_FINDING_FREED:
        note_set_place(&finding->freed, record);
        break;
    case SEGALLOC_FINDING_FREED_BY:
        note_set_by(&finding->freed, record);
        break;
    case SEGALLOC_FINDING_NOW_AT:
        note_set_place(&finding->by, record);
        break;
    case SEGALLOC_FINDING_NOW_BY:
        note_set_by(&finding->by, record);
        break;
    case SEGALLOC_FINDING_BETWEEN:
        finding->between_ns = record->id;
        break;
    case SEGALLOC_FINDING_ORDER:
        add_order(finding->order, record);
        break;
    default: /* of a later version */
        break;
    }
}

void sg_checked_take(struct sg_checked *checked, const struct segalloc_trace_record *record)
{
    if (record->flags & SEGALLOC_FLAG_FIRST) {
        checked->open = (struct sg_checked_finding){.kind = 0};
        checked->is_open = true;
    }
    if (!checked->is_open)
        return;
    take_field(&checked->open, record);
    if (!(record->flags & SEGALLOC_FLAG_LAST))
        return;
    checked->is_open = false;
    if (!checked->open.has_kind)
        return;
    if (checked->count < SG_CHECKED_KEPT)
        checked->finding[checked->count] = checked->open;
    checked->count++;
}

uint32_t sg_checked_kept(const struct sg_checked *checked)
{
    return checked->count < SG_CHECKED_KEPT ? (uint32_t)checked->count : SG_CHECKED_KEPT;
}
