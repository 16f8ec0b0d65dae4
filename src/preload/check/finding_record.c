/* Fields are gathered on the stack and given to the trace at once. */
#include "check/finding_record.h"

#include <string.h>

#include "base/rest.h"
#include "services/recorder.h"

enum { FIELDS = 24, TRIES = 3, REST_NS = 5000000 };

struct run {
    struct segalloc_trace_record field[FIELDS];
    uint32_t count;
};

static void run_add(struct run *run, enum segalloc_finding_field field, uint64_t id, uint64_t size)
{
    if (run->count < FIELDS)
        run->field[run->count++] = (struct segalloc_trace_record){.kind = SEGALLOC_RECORD_FINDING,
            .stream = (uint32_t)field,
            .id = id,
            .size = size};
}

/* Adds an allocation or a free by two fields. The second one is left out where no thread is known. */
static void run_add_note(struct run *run, const struct sg_check_note *note, enum segalloc_finding_field at,
    enum segalloc_finding_field by)
{
    run_add(run, at, note->event, (uint64_t)note->site << 32 | note->phase);
    run_add(run, by, (uintptr_t)note->stream, (uint64_t)(uint32_t)note->thread | (uint64_t)note->has_stream << 32);
}

/* Adds the order of a free, 16 characters a field. */
static void run_add_order(struct run *run, const char *order)
{
    for (size_t left = strlen(order), piece; left; order += piece, left -= piece) {
        uint64_t word[2] = {0};
        piece = left < sizeof word ? left : sizeof word;
        memcpy(word, order, piece);
        run_add(run, SEGALLOC_FINDING_ORDER, word[0], word[1]);
    }
}

static void run_add_block(struct run *run, const struct sg_freed *block)
{
    run_add(run, SEGALLOC_FINDING_BLOCK, block->base, block->bytes);
    run_add_note(run, &block->allocated, SEGALLOC_FINDING_ALLOCATED, SEGALLOC_FINDING_ALLOCATED_BY);
    if (!block->freed.event)
        return;
    run_add_note(run, &block->freed, SEGALLOC_FINDING_FREED, SEGALLOC_FINDING_FREED_BY);
    if (block->order)
        run_add_order(run, block->order);
}

static void run_add_now(struct run *run, const struct sg_check_block *now, const struct sg_freed *block)
{
    run_add(run, SEGALLOC_FINDING_NOW, now->address, now->bytes);
    run_add_note(run, &now->note, SEGALLOC_FINDING_NOW_AT, SEGALLOC_FINDING_NOW_BY);
    if (block && block->freed.event && now->note.event > block->freed.event)
        run_add(run, SEGALLOC_FINDING_BETWEEN, now->note.ns - block->freed.ns, 0);
}

void sg_finding_record(const struct sg_finding *finding)
{
    struct run run = {.count = 0};
    run_add(&run, SEGALLOC_FINDING_KIND, finding->kind, (uint64_t)finding->device);
    if (finding->block)
        run_add_block(&run, finding->block);
    if (finding->now && finding->kind != SG_FINDING_OVERRUN)
        run_add_now(&run, finding->now, finding->block);
    if (finding->compared || finding->block)
        run_add(&run, SEGALLOC_FINDING_WHERE, finding->address, finding->offset);
    if (finding->compared) {
        run_add(&run, SEGALLOC_FINDING_BYTES, finding->differ, finding->compared);
        run_add(&run, SEGALLOC_FINDING_LAST, finding->last, finding->moved);
        run_add(&run, SEGALLOC_FINDING_WORDS, (uint64_t)finding->filled << 32 | finding->found, finding->missing);
    }
    run.field[0].flags = SEGALLOC_FLAG_FIRST;
    run.field[run.count - 1].flags |= SEGALLOC_FLAG_LAST;
    for (int i = 0; i < TRIES && !sg_recorder_define(run.field, run.count); i++)
        sg_rest(REST_NS);
}
