/* All samples of one block in a batch make one finding at most. */
#include "check/compare.h"

#include <stdatomic.h>
#include <string.h>

#include "check/findings.h"
#include "inspect/inventory.h"
#include "process/process.h"

static _Atomic uint64_t compared_bytes;

uint64_t sg_check_compared(void)
{
    return atomic_load_explicit(&compared_bytes, memory_order_relaxed);
}

/* The sums over the samples of a block. */
struct sums {
    struct sg_finding finding;
    uint64_t body, body_differ; /* bytes in front of the tail */
    uint64_t own, own_differ;   /* of the tail's first quarter, which the stream of the free wrote last */
};

/* Notes that `bytes` bytes differ; the lowest ones are kept for the text. Samples are in any order. */
static void note_difference(struct sums *sums, const struct sg_sample *sample, uint64_t offset, CUdeviceptr address,
    unsigned bytes, uint32_t filled, uint32_t found)
{
    struct sg_finding *finding = &sums->finding;
    if (!finding->differ || offset < finding->offset) {
        finding->address = address;
        finding->offset = offset;
        finding->filled = filled;
        finding->found = found;
        finding->moved = !sample->canary && sample->address - sample->offset != sample->freed->base;
    }
    finding->differ += bytes;
    if (offset + bytes - 1 > finding->last)
        finding->last = offset + bytes - 1;
}

/* Compares a row of words. Which part of the block a word lies in says later what its difference means. */
static void compare_row(struct sums *sums, const struct sg_sample *sample, const unsigned char *data, uint64_t offset,
    CUdeviceptr address)
{
    const struct sg_fill *fill = &sample->freed->fill;
    uint64_t tail = fill->has_tail ? fill->room - SG_TAIL : fill->room;
    for (uint32_t i = 0; i + 4 <= sample->bytes; i += 4) {
        uint32_t filled, found, mask = sg_fill_expected(fill, offset + i, &filled);
        if (!mask)
            continue;
        memcpy(&found, data + i, sizeof found);
        found &= mask;
        bool body = offset + i < tail, own = !body && offset + i < tail + SG_TAIL_STAMPS, differs = found != filled;
        sums->finding.compared += 4;
        sums->body += body ? 4 : 0;
        sums->own += own ? 4 : 0;
        if (!differs)
            continue;
        sums->body_differ += body ? 4 : 0;
        sums->own_differ += own ? 4 : 0;
        for (uint64_t left = sg_fill_stamps_at(fill, offset + i); left; left &= left - 1) {
            unsigned slot = (unsigned)__builtin_ctzll(left);
            uint32_t at = UINT32_C(0xffff) << slot % 2 * 16;
            if ((found ^ filled) & at)
                sums->finding.missing |= UINT64_C(1) << slot;
        }
        note_difference(sums, sample, offset + i, address + i, 4, filled, found);
    }
}

/* Compares a row of bytes behind a block that was the program's until now; `at`: where in the sample it begins. */
static void compare_canary(struct sums *sums, const struct sg_sample *sample, const unsigned char *data, uint64_t at)
{
    sums->finding.compared += sample->bytes;
    for (uint64_t i = 0; i < sample->bytes; i++)
        if (data[i] != SG_CANARY_BYTE)
            note_difference(sums, sample, sample->offset + at + i, sample->address + at + i, 1, SG_CANARY_BYTE, data[i]);
}

/* Where all that the stream of the free wrote is missing, that stream had not come to the fill yet. */
static enum sg_finding_kind compare_kind(const struct sums *sums)
{
    bool nothing = sums->own ? sums->own_differ == sums->own : false;
    if (nothing && sums->body_differ == sums->body)
        return SG_FINDING_EARLY;
    return sums->finding.missing ? SG_FINDING_EARLY : SG_FINDING_WRITE_AFTER_FREE;
}

/* Looks whether the words, as they were when the next owner began, have all marks that the block needs. Those of another context
   are looked at now, after that. */
static void compare_words(struct sums *sums, const struct sg_batch *batch, const struct sg_sample *sample)
{
    const struct sg_marks *marks = &sample->freed->marks;
    const uint32_t *words = (const uint32_t *)(const void *)(batch->data + sample->at);
    for (unsigned i = 0; i < marks->count; i++)
        if (marks->mark[i].lane == batch->lane
                ? sg_mark_is_missing(&marks->mark[i], batch->lane, words, sample->bytes / 4)
                : sg_mark_is_out(&marks->mark[i])) {
            sums->finding.late = true;
            sums->finding.late_stream = sg_mark_stream(&marks->mark[i]);
        }
}

void sg_check_compare(struct sg_batch *batch)
{
    uint64_t compared = 0;
    struct sg_core *core = sg_process_core();
    for (unsigned i = 0; i < batch->count; i++) {
        const struct sg_sample *first = &batch->sample[i];
        bool seen = false;
        for (unsigned k = 0; k < i; k++)
            seen |= batch->sample[k].freed == first->freed && batch->sample[k].canary == first->canary;
        if (seen)
            continue;
        struct sums sums = {.finding = {.block = first->freed, .device = first->freed->device, .now = &batch->now}};
        for (unsigned k = i; k < batch->count; k++) {
            const struct sg_sample *sample = &batch->sample[k];
            const unsigned char *data = batch->data + sample->at;
            if (sample->freed != first->freed || sample->canary != first->canary)
                continue;
            if (sample->words)
                compare_words(&sums, batch, sample);
            for (uint32_t row = 0; row < sample->rows; row++, data += sample->bytes) {
                uint64_t at = row * sample->pitch;
                if (sample->canary)
                    compare_canary(&sums, sample, data, at);
                else
                    compare_row(&sums, sample, data, sample->offset + at, sample->address + at);
            }
        }
        compared += sums.finding.compared;
        if (core)
            sg_core_count(core, sums.finding.device, SG_STAT_check_read_bytes, sums.finding.compared);
        if (sums.finding.differ || sums.finding.late) {
            sums.finding.kind = first->canary       ? SG_FINDING_OVERRUN
                                : sums.finding.late ? SG_FINDING_EARLY
                                                    : compare_kind(&sums);
            sg_findings_add(&sums.finding);
        }
    }
    atomic_fetch_add_explicit(&compared_bytes, compared, memory_order_relaxed);
}
